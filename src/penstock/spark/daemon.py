"""Spark's daemon of Python workers, with what they need already loaded.

PySpark's own lets each worker that it forks import everything anew. The only thread that loading
it before the fork brings into the daemon is that of Arrow's allocator, which knows about forks.
"""

import importlib
import sys

from pyspark import daemon

__all__: list[str] = []


def _load() -> None:
    """Import the worker's module, which Spark names, and the data source."""
    for name in (*sys.argv[1:2], "penstock.spark.source"):
        if name.startswith(("pyspark.", "penstock.")):
            importlib.import_module(name)


if __name__ == "__main__":
    _load()
    daemon.manager()
