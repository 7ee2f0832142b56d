"""Executors that are processes of their own, and share no folder with the broker, read and write."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.support.flight import serve_tables
from tests.support.live import LiveBroker

ROWS = 2_000
SECONDS_MAX = 240
SPARK = Path(pyspark.__file__).parent
HOST = "127.0.0.2"
"""The address of the cluster; the driver has another."""
DRIVER = "127.0.0.3"
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

PROGRAM = """
import os
import sys
from penstock.spark import scan, session
from penstock.spark.parallelism import cores_in_environment

rows = int(sys.argv[3])
small = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
spark = session("cluster", master=sys.argv[4], short=True, **small)
host = spark.sparkContext.getConf().get("spark.driver.host")
assert host == sys.argv[5], host
assert cores_in_environment() == 2
where = {"endpoint": sys.argv[1]}
frame = spark.range(0, rows, 1, 4).selectExpr(
    "concat('plant/', id % 7) as topic", "cast(id as string) as value"
)
frame.write.format("penstock").options(**where).mode("append").save()
read = spark.read.format("penstock").options(**where, minPartitions="4").load()
assert sorted(int(row.value) for row in read.collect()) == list(range(rows))
query = (
    spark.readStream.format("penstock")
    .options(**where, startingOffsets="earliest", subscribe="plant/3")
    .load()
    .selectExpr("'copy' as topic", "value")
    .writeStream.format("penstock")
    .options(**where, checkpointLocation=sys.argv[2])
    .trigger(availableNow=True)
    .start()
)
assert query.awaitTermination(120)
copied = scan(spark, **where, subscribe="copy", minPartitions=2)
assert sorted(int(row.value) for row in copied.collect()) == list(range(3, rows, 7))
executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
assert len(executors) == 3, "a driver and two executors"
print("all is there", flush=True)
os._exit(0)  # nobody waits for a cluster to be taken down
"""


def _answers(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex((HOST, port)) == 0


def _start(role: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
    }
    return subprocess.Popen(  # noqa: S603
        [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments,
         "--host", HOST, "--webui-port", "0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster: a master, and a worker with two cores."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    started = [_start("master.Master", "--port", str(port))]
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not _answers(port):
            assert started[0].poll() is None, "the master has ended"
            assert time.monotonic() < deadline, "the master does not listen"
            time.sleep(0.05)
        url = f"spark://{HOST}:{port}"
        work = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        started.append(_start("worker.Worker", *work, url))
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(SECONDS_MAX)


@pytest.mark.spark
def test_executors_of_a_cluster_work_over_flight(tmp_path: Path, cluster: str) -> None:
    data = tmp_path / "data"
    with LiveBroker(data=data) as broker:
        endpoint = serve_tables(broker, data)
        checkpoint = str(tmp_path / "checkpoint")
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROGRAM, endpoint, checkpoint, str(ROWS), cluster, DRIVER],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": DRIVER},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert "all is there" in done.stdout
