"""A Spark cluster of a master and two workers, as processes, and the pipeline on it."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pyspark
from examples.demo.errors import DemoFailed
from examples.demo.processes import penstock
from examples.demo.screen import waiting

__all__ = ["cluster", "run_pipeline"]

HOST = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent
SMALL = "-XX:TieredStopAtLevel=1 -XX:-UseParallelGC -XX:+UseSerialGC"
START_SECONDS_MAX = 120.0
RUN_SECONDS_MAX = 300.0
END_SECONDS_MAX = 10.0
POLL_SECONDS = 0.1

PIPELINE = """
[source]
url = "{log}"
endpoint = "{flight}"

[warehouse]
folder = "warehouse"

[[silver]]
name = "readings"
topics = ["brewery/#"]
format = "json"
field = [{{ name = "number", type = "int", required = true }}]

[spark]
master = "{master}"

[spark.conf]
"spark.driver.extraJavaOptions" = "{small}"
"spark.executor.extraJavaOptions" = "{small}"
"spark.executor.memory" = "512m"
"spark.executor.cores" = "1"
"spark.cores.max" = "2"
"spark.sql.codegen.wholeStage" = "false"
"spark.sql.shuffle.partitions" = "2"
"spark.python.unix.domain.socket.enabled" = "false"
"""


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[str]:
    """Run a master and two workers of a core each; the context is the master's URL."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        _start(stack, folder, "master.Master", "--port", str(port))
        async with asyncio.timeout(START_SECONDS_MAX):
            while not _answers(port):
                await asyncio.sleep(POLL_SECONDS)
        master = f"spark://{HOST}:{port}"
        for name in ("one", "two"):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name))
            _start(stack, folder, "worker.Worker", *work, master)
        yield master


def _start(stack: ExitStack, folder: Path, role: str, *arguments: str) -> None:
    """Start a process of the cluster, and end it with the stack."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
    }
    with (folder / "spark.txt").open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments,
             "--host", HOST, "--webui-port", "0"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def end() -> None:
        process.terminate()
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def _answers(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex((HOST, port)) == 0


async def run_pipeline(folder: Path, *, log: str, flight: str, master: str) -> None:
    """Update all tables from Kafka, on the cluster; raise DemoFailed."""
    config, output = folder / "pipeline.toml", folder / "pipeline.txt"
    config.write_text(PIPELINE.format(log=log, flight=flight, master=master, small=SMALL))
    run = penstock(
        "pipeline", "run", "--once", "--config", str(config), output=output, SPARK_LOCAL_IP=HOST
    )
    with run as process, waiting("Spark starts; this takes most of the time …"):
        async with asyncio.timeout(RUN_SECONDS_MAX):
            while process.poll() is None:
                await asyncio.sleep(POLL_SECONDS)
    if process.returncode:
        lines = output.read_text().strip().splitlines() or ["it printed nothing"]
        raise DemoFailed(f"the pipeline failed: {lines[-1]}")
