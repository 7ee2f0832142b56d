"""A Spark session, local or of a cluster, that starts fast and logs only warnings and errors."""

import contextlib
import os
import sys
import tempfile
import threading
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.spark.jvm import class_archive_option, find_java
from penstock.spark.parallelism import PARALLELISM, cores_of, is_local
from penstock.spark.stderr_filter import filtered_stderr

__all__ = ["session"]

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.worker_daemon",
    # The default one forks a process about 40 times a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The interval at which an idle query looks for new records.
    "spark.sql.streaming.pollingDelay": "100ms",
}
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}
"""Settings for a master on this machine. Executors of a cluster connect to the driver's address,
and shuffle by the cluster's cores."""
_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Turn off Arrow's bounds and null checks per value: Spark checks nulls itself, and the batches
that workers send are valid."""
_LONG: Final = "-XX:+UseParallelGC"
_SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m"
"""Options for a session of a few seconds: compile less code, and earlier."""
_QUIET: Final = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"

_ERROR_LOGGER: Final = "SQLQueryContextLogger"
"""PySpark's logger that prints each query error with Java's stack, in addition to raising it."""

_starting: Final = threading.Lock()


def session(
    name: str = "penstock", *, master: str = "local[*]", short: bool = False, **settings: str
) -> SparkSession:
    """Return the session of this process; start one if there is none.

    On a cluster, executors connect to the address of this machine; set `spark.driver.host` if they
    know it under another. `short` is for a session of a few seconds. `settings` are Spark's, with
    `_` for `.` or under their own names: `session("job", **{"spark.driver.memory": "4g"})`; they
    override the defaults of this module. Raise NoJava.
    """
    with _starting:
        starts_jvm = SparkContext._gateway is None  # noqa: SLF001
        local = is_local(master)
        archive = _prepare_environment(local=local, starts_jvm=starts_jvm)
        PySparkLogger.getLogger(_ERROR_LOGGER).disabled = True
        conf = {
            "spark.app.name": name,
            "spark.master": master,
            **_SETTINGS,
            **(_LOCAL if local else {}),
            **_with_java_options(settings, archive=archive, short=short, local=local),
        }
        if starts_jvm:
            cores = cores_of(master, conf)
            os.environ.pop(PARALLELISM, None)
            if cores is not None:
                os.environ[PARALLELISM] = str(cores)
            _start_jvm(conf)
        return SparkSession.builder.config(map=dict(conf)).getOrCreate()


def _prepare_environment(*, local: bool, starts_jvm: bool) -> str:
    """Set the variables that Spark's scripts read; return the option of the class archive."""
    java = find_java() if starts_jvm else None
    archive = ""
    with contextlib.suppress(OSError):
        home = _spark_home()
        os.environ.setdefault("SPARK_HOME", str(home))
        if java is not None and os.environ["SPARK_HOME"] == str(home):
            archive = class_archive_option(home, java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return archive


def _with_java_options(
    settings: Mapping[str, str], *, archive: str, short: bool, local: bool
) -> dict[str, str]:
    """Return settings under Spark's names, with the Java options of driver and executors.

    Executors on other machines do not have the file of log settings.
    """
    given = {key.replace("_", ".") if "." not in key else key: settings[key] for key in settings}
    logging = f"-Dlog4j2.configurationFile={files('penstock.spark') / 'log4j2.properties'}"
    java = " ".join((_QUIET, _ARROW, _SHORT if short else _LONG))
    for options, more in (
        ("spark.driver.extraJavaOptions", f"{logging} {archive}"),
        ("spark.executor.extraJavaOptions", logging if local else ""),
    ):
        given[options] = " ".join(filter(None, (java, more, given.get(options, ""))))
    return given


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM with a filtered standard error, and the SparkContext that sessions share."""
    conf = SparkConf().setAll(list(settings.items()))
    with filtered_stderr() as stderr:
        gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


def _spark_home() -> Path:
    """Return a folder of links to the installed Spark without `python/lib`; create it once.

    `python/lib` is an archive of PySpark without byte code, which every worker would compile.
    Without it, workers import the installed package.
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
