"""What goes wrong in Spark, for commands: one line that says what to do."""

import contextlib
import logging
import os
import re
import shutil
import signal
from collections.abc import Iterator
from typing import Final

from penstock.cli.client_options import CommandFailed
from penstock.errors import OperatorError

__all__ = ["spark_errors", "starting_spark"]

# What a task of ours raised stands in Spark's text as the last line of a traceback.
_OURS: Final = re.compile(r"^penstock(?:\.\w+)+: (.+)$", re.MULTILINE)
_UNKNOWN_NAME: Final = "TABLE_OR_VIEW_NOT_FOUND"


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into the one line of a command; raise CommandFailed without Java."""
    _need_java()
    from pyspark.errors import PySparkException  # noqa: PLC0415  (so that --help starts fast)

    try:
        yield
    except PySparkException as error:
        raise _failed("", error) from error
    except OperatorError as error:
        cause = error.__cause__ or error.__context__
        if not isinstance(cause, PySparkException):
            raise
        raise _failed(f"{error.args[0]}: ", cause) from error


@contextlib.contextmanager
def starting_spark() -> Iterator[None]:
    """Hold Ctrl-C back while Spark starts; behind it Ctrl-C ends the command at once.

    A JVM that is left alone while it starts stays. PySpark's own handler, which comes with the
    session, asks the JVM to cancel what runs, in the middle of another question to it.
    """
    held: list[object] = []

    def end(*_: object) -> None:
        logging.disable()  # py4j would tell of the question that has no answer now
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, lambda *_: held.append(_))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end)
    if held:
        end()


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        place = f"JAVA_HOME, which is {home}" if home else "PATH"
        raise CommandFailed(f"Spark needs Java, and there is none in {place}", "install Java 17")


def _failed(what: str, error: Exception) -> CommandFailed:
    text = str(error)
    lines = _OURS.findall(text)[-1:] or [line for line in text.splitlines() if line.strip()]
    reason = lines[0].rstrip(". ") if lines else type(error).__name__
    remedy = "a topic stands in `backquotes`, and tables need --config"
    return CommandFailed(f"{what}{reason}", remedy if _UNKNOWN_NAME in reason else "")
