"""The daemon that forks Spark's Python workers, with their modules already imported.

Workers of PySpark's own daemon import everything after the fork. Importing before the fork starts
one thread in the daemon, that of Arrow's allocator, which is safe across forks.

A worker collects garbage after each task, and would look at all objects of all modules each time,
which takes longer than a small task. So these objects are left out.
"""

import gc
import importlib
import sys

from pyspark import daemon

__all__: list[str] = []


def _import_worker_modules() -> None:
    """Import the worker module that Spark passes as an argument, and our own for tasks."""
    for name in (*sys.argv[1:2], "penstock.spark.data_source", "penstock.spark.file_rows"):
        if name.startswith(("pyspark.", "penstock.")):
            importlib.import_module(name)


if __name__ == "__main__":
    _import_worker_modules()
    gc.collect()
    gc.freeze()
    daemon.manager()
