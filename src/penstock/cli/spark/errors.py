"""Errors of Spark turned into the one line of a command. This module imports pyspark."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import Final

from pyspark.errors import PySparkException

from penstock.cli.common.failure import CommandFailed
from penstock.errors import OperatorError
from penstock.pipeline.errors import reason_of
from penstock.spark.jvm import find_java

__all__ = ["spark_errors", "starting_spark"]

_UNKNOWN_NAME: Final = "TABLE_OR_VIEW_NOT_FOUND"


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Raise CommandFailed for each error of Spark; raise NoJava if there is no Java."""
    find_java()
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
    """Delay Ctrl-C while Spark starts; afterwards Ctrl-C ends the command at once.

    A JVM that is abandoned while it starts keeps running. PySpark installs a handler with the
    session, which calls the JVM in the middle of another call; this replaces it.
    """
    held: list[object] = []

    def end(*_: object) -> None:
        logging.disable()  # py4j would log the call that was interrupted
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
    remedy = "write topics in `backquotes`, and give --config for tables"
    return CommandFailed(f"{what}{reason}", remedy if _UNKNOWN_NAME in reason else "")
