"""A standalone cluster: executors that share no folder with the broker, and the pipeline's commands."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyspark
import pytest

import penstock
from tests.support.flight import serve_tables
from tests.support.live import LiveBroker

ROWS = 2_000
SECONDS_MAX = 240
SPARK = Path(pyspark.__file__).parent
HOST = "127.0.0.2"
"""The address of the cluster; the driver has another."""
DRIVER = "127.0.0.3"
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
(MASTER, WORKER) = PAGE.partition("\n```sh\n")[2].partition("```")[0].splitlines()
"""The page's commands that start a cluster."""

PROGRAM = """
import os
import shlex
import sys
from penstock.cli.main import main
from penstock.spark import scan, session
from penstock.spark.parallelism import cores_in_environment

rows, (endpoint, checkpoint, master, driver, *lines) = int(sys.argv[1]), sys.argv[2:]
for line in lines:
    sys.argv = ["penstock", *shlex.split(line)]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (line, ended.code)
    print("end of the command", flush=True)

# The session of the commands, which the pipeline's file describes.
spark = session("cluster", master=master)
assert spark.sparkContext.master == master
host = spark.sparkContext.getConf().get("spark.driver.host")
assert host == driver, host
assert cores_in_environment() == 2
where = {"endpoint": endpoint}
frame = spark.range(0, rows, 1, 4).selectExpr(
    "concat('plant/', id % 7) as topic", "cast(id as string) as value"
)
frame.write.format("penstock").options(**where).mode("append").save()
read = spark.read.format("penstock").options(**where, minPartitions="4", subscribe="plant/#").load()
assert sorted(int(row.value) for row in read.collect()) == list(range(rows))
query = (
    spark.readStream.format("penstock")
    .options(**where, startingOffsets="earliest", subscribe="plant/3")
    .load()
    .selectExpr("'copy' as topic", "value")
    .writeStream.format("penstock")
    .options(**where, checkpointLocation=checkpoint)
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


def _start(line: str, port: int, *more: str) -> subprocess.Popen[bytes]:
    """Run a command of the page on our address and port; of an option given twice the last counts."""
    said = line.replace("spark-master", HOST).replace("7077", str(port))
    program, role, *arguments = shlex.split(said)
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
    }
    return subprocess.Popen(  # noqa: S603
        [str(SPARK / "bin" / program), role, *arguments, "--host", HOST, "--webui-port", "0", *more],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster: a master, and two workers with a core each."""
    folder = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    started = [_start(MASTER, port)]
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not _answers(port):
            assert started[0].poll() is None, "the master has ended"
            assert time.monotonic() < deadline, "the master does not listen"
            time.sleep(0.05)
        for name in ("first", "second"):
            less = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name))
            started.append(_start(WORKER, port, *less))
        yield f"spark://{HOST}:{port}"
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(SECONDS_MAX)


PIPELINE = """
[source]
endpoint = "{endpoint}"

[warehouse]
folder = "warehouse"

[[silver]]
name = "temperature"
topics = ["sensors/+/temp"]
format = "text"
field = [{{ name = "celsius", type = "double" }}]

[[silver]]
name = "packed"
topics = ["packed"]
format = "messagepack"
field = [{{ name = "celsius", type = "double" }}]

[[publish]]
table = "traffic"
topic = "penstock/traffic"

[spark]
master = "{master}"

[spark.conf]
"spark.executor.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"spark.executor.cores" = "1"
"spark.cores.max" = "2"
"spark.sql.codegen.wholeStage" = "false"
"spark.sql.shuffle.partitions" = "2"
"""


COMMANDS = {
    "run": "pipeline run --once",
    "status": "pipeline status",
    "rebuild": "pipeline rebuild temperature",
    "sql": "sql --config pipeline.toml --json 'select count(*) as n from temperature'",
}


@pytest.mark.spark
def test_executors_of_a_cluster_work_over_flight_and_for_the_pipeline(
    tmp_path: Path, cluster: str
) -> None:
    """In one process: each session of a cluster starts a JVM for the driver and each executor."""
    data = tmp_path / "data"
    with LiveBroker(data=data) as broker:
        endpoint = serve_tables(broker, data)
        settings = PIPELINE.format(endpoint=endpoint, master=cluster)
        (tmp_path / "pipeline.toml").write_text(settings)
        url = "tcp://{}:{}".format(*broker.address)
        with penstock.connect_sync(url, protocol="lamamq") as client:
            for number in range(ROWS):
                client.publish(f"sensors/{number % 3}/temp", b"%d.5" % number)
            client.publish("sensors/0/temp", b"broken")
            client.publish("packed", msgspec.msgpack.encode({"celsius": 7.5}))
        arguments = [str(ROWS), endpoint, str(tmp_path / "checkpoint"), cluster, DRIVER]
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROGRAM, *arguments, *COMMANDS.values()],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": DRIVER},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    *printed, rest = done.stdout.split("end of the command\n")
    assert "all is there" in rest
    answers = dict(zip(COMMANDS, printed, strict=True))
    assert re.search(rf"^temperature\s+{ROWS}\s", answers["status"], re.MULTILINE)
    assert re.search(r"^dead_letters\s+1\s", answers["status"], re.MULTILINE)
    assert re.search(r"^packed\s+1\s", answers["status"], re.MULTILINE)
    assert answers["rebuild"].strip() == f"temperature: {ROWS:,} rows, 1 dead letter"
    assert json.loads(answers["sql"]) == {"n": ROWS}
