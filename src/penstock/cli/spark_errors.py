"""What goes wrong in Spark, for commands: one line that says what to do."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import Final

from penstock.cli.client_options import CommandFailed
from penstock.errors import OperatorError
from penstock.pipeline.errors import reason_of

__all__ = ["spark_errors", "starting_spark"]

_UNKNOWN_NAME: Final = "TABLE_OR_VIEW_NOT_FOUND"


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into the one line of a command; raise NoJava first of all."""
    from penstock.spark.jvm import find_java  # noqa: PLC0415  (so that --help starts fast)

    find_java()
    from pyspark.errors import PySparkException  # noqa: PLC0415

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


def _failed(what: str, error: Exception) -> CommandFailed:
    reason = reason_of(error)
    remedy = "a topic stands in `backquotes`, and tables need --config"
    return CommandFailed(f"{what}{reason}", remedy if _UNKNOWN_NAME in reason else "")
