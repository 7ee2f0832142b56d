"""Spark's daemon of Python workers, faster and quieter.

PySpark's own forks a process for each step of planning and for each task that finds none idle, and
lets each import everything anew. Here that is done before the fork. The only thread that this
brings into the daemon is Arrow's allocator's, which knows about forks.

A query that needs only the first rows, `limit` or `show`, closes the connection to a worker that
still writes. That is no error of anyone's, but PySpark prints one.
"""

import importlib
import sys
from socket import socket

from pyspark import daemon

__all__: list[str] = []

_worker = daemon.worker


def _let_go(sock: socket, authenticated: bool) -> int:  # noqa: FBT001
    """Serve a connection; return the exit code."""
    try:
        return int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return 1


def _load() -> None:
    """Import what workers need: the module that Spark names, and the data source."""
    for name in (*sys.argv[1:2], "penstock.spark.source"):
        if name.startswith(("pyspark.", "penstock.")):
            importlib.import_module(name)


if __name__ == "__main__":
    _load()
    daemon.worker = _let_go
    daemon.manager()
