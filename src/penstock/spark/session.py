"""A local Spark session that starts fast and says nothing unless something is wrong."""

import contextlib
import os
import sys
import tempfile
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.spark.class_archive import class_archive_option
from penstock.spark.java import find_java
from penstock.spark.noise import filtered_stderr

__all__ = ["session"]

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    # The default one forks a process about 40 times a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # How often an idle query looks for more.
    "spark.sql.streaming.pollingDelay": "100ms",
}
_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""No check of bounds and nulls for each value: Spark asks for nulls itself, and Arrow that comes
from a worker is whole."""
_LONG: Final = "-XX:+UseParallelGC"
_SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m"
"""For a session that lives for seconds: less is compiled, and that sooner."""
_QUIET: Final = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"

_ECHO: Final = "SQLQueryContextLogger"
"""Who prints each error of a query with Java's whole stack, though it is raised too."""


def session(
    name: str = "penstock", *, master: str = "local[*]", short: bool = False, **settings: str
) -> SparkSession:
    """Return the session of this process, a new one if there is none.

    `short` is for one that lives for seconds. `settings` are Spark's, with `_` for `.` or under
    their own names: `session("job", **{"spark.driver.memory": "4g"})`; they go before ours.
    Raise NoJava.
    """
    starts_java = SparkContext._gateway is None  # noqa: SLF001
    java_program = find_java() if starts_java else None
    archive = ""
    with contextlib.suppress(OSError):
        home = _home()
        os.environ.setdefault("SPARK_HOME", str(home))
        if java_program is not None and os.environ["SPARK_HOME"] == str(home):
            archive = class_archive_option(home, java_program)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    PySparkLogger.getLogger(_ECHO).disabled = True
    builder = SparkSession.builder.appName(name).master(master)
    given = {key.replace("_", ".") if "." not in key else key: settings[key] for key in settings}
    logging = f"-Dlog4j2.configurationFile={files('penstock.spark') / 'log4j2.properties'}"
    java = " ".join((logging, _QUIET, _ARROW, _SHORT if short else _LONG))
    for options, more in (
        ("spark.driver.extraJavaOptions", archive),
        ("spark.executor.extraJavaOptions", ""),
    ):
        given[options] = " ".join(filter(None, (java, more, given.get(options, ""))))
    for key, value in {**_SETTINGS, **given}.items():
        builder = builder.config(key, value)
    with filtered_stderr() if starts_java else contextlib.nullcontext():
        return builder.getOrCreate()


def _home() -> Path:
    """Return a folder of links to Spark, made once, that has no `python/lib`.

    What is there has no byte code, so each worker would compile all of PySpark anew; without it
    they import the installed package.
    """
    installed = Path(pyspark.__file__).parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    home = cache / f"spark-{pyspark.__version__}-{zlib.crc32(str(installed).encode()):08x}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=cache))
    for each in installed.iterdir():
        if each.name != "python":
            (made / each.name).symlink_to(each)
    try:
        made.rename(home)
    except OSError:  # another process was faster
        for each in made.iterdir():
            each.unlink()
        made.rmdir()
    return home
