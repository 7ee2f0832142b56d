"""Spark's Python daemon, without a traceback for each worker that Spark itself has let go.

A worker that was idle for a minute is ended by closing its connection, and then fails to say
goodbye on it. `spark.python.daemon.module` names this module.
"""

import sys
import traceback

from pyspark.daemon import manager

__all__: list[str] = []


def _print_unless_let_go() -> None:
    error = sys.exc_info()[1]
    if not isinstance(error, BrokenPipeError):
        traceback.print_exception(error)


if __name__ == "__main__":
    traceback.print_exc = _print_unless_let_go  # type: ignore[assignment]
    manager()
