"""`penstock spark package`: executors of a real cluster, on machines without Penstock, work with it."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import penstock
from penstock.errors import CannotExport
from penstock.spark.package import make_package
from tests.support.commands import Commands
from tests.support.machines import Machines, why_not
from tests.support.running import environment
from tools.kafka import KafkaBroker, KafkaMissing, Ports, fetch

ROWS = 2_000
SECONDS_MAX = 900
SPARK = Path(pyspark.__file__).parent
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
KAFKA_PORT, FLIGHT_PORT, MASTER_PORT = 9092, 7090, 7077
BIG = (
    "pyarrow", "pandas", "numpy", "deltalake", "arro3-core", "fastavro", "pydantic-core", "uvloop",
)  # fmt: skip
"""Packages that would make archives large and tests slow."""
UNUSED = ("deltalake", "arro3-core", "fastavro", "protobuf")
"""Packages that the job on the cluster does not import."""
CLUSTER = "PENSTOCK_CLUSTER"
"""The variable with which `make cluster` runs the job on a cluster."""

JOB = """
import os
import sys
from penstock.spark import scan
from pyspark.sql import SparkSession

endpoint, bootstrap, folder, rows = *sys.argv[1:4], int(sys.argv[4])
spark = SparkSession.builder.appName("job").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

def place(_):
    import penstock
    return penstock.__file__

found = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
for path in found:
    assert path.endswith("/penstock/penstock/__init__.py") and "/work-" in path, path
workers = {path.split("/work-")[1].split("/")[0] for path in found}
assert workers == {"one", "two"}, workers

flight = {"endpoint": endpoint}
kafka = {"kafka.bootstrap.servers": bootstrap, "kafkaTopic": "cluster"}
frame = spark.range(0, rows, 1, 4).selectExpr(
    "concat('plant/', id % 7) as topic", "cast(id as string) as value"
)
frame.write.format("penstock").options(**flight).mode("append").save()
for name, where in {"flight": flight, "kafka": kafka}.items():
    read = spark.read.format("penstock").options(**where, minPartitions="4", subscribe="plant/#")
    numbers = sorted(int(row.value) for row in read.load().select("value").collect())
    assert numbers == list(range(rows)), name
    query = (
        spark.readStream.format("penstock")
        .options(**where, startingOffsets="earliest", subscribe="plant/3")
        .load()
        .selectExpr(f"'copy/{name}' as topic", "value")
        .writeStream.format("penstock")
        .options(**flight, checkpointLocation=f"{folder}/checkpoint-{name}")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(800), name
    copied = scan(spark, **where, subscribe=f"copy/{name}", minPartitions=2)
    assert sorted(int(row.value) for row in copied.collect()) == list(range(3, rows, 7)), name
print("all is there", flush=True)
os._exit(0)
"""

NODE = """
[storage]
kind = "kafka"
bootstrap = "{host}:{kafka}"
topic = "cluster"

[flight]
address = "{host}:{flight}"
anonymous = true

[[listener]]
url = "tcp://127.0.0.1:7000"
"""


def test_the_archive_has_compiled_kernels_and_dependencies_but_not_pyspark(tmp_path: Path) -> None:
    out = tmp_path / "small.zip"
    made = make_package(out, without=BIG)
    with zipfile.ZipFile(out) as packed:
        names = packed.namelist()
        about = json.loads(packed.read("penstock-spark.json"))
    assert any(name.startswith("penstock/_kernels/batch.") and ".so" in name for name in names)
    assert {"penstock/spark/package.py", "pyspark_penstock/__init__.py"} <= set(names)
    assert any(name.startswith("confluent_kafka.libs/") for name in names)
    assert not [name for name in names if name.startswith(("pyspark/", "py4j/", "pyarrow/", "/"))]
    assert not [name for name in names if ".." in name or name.endswith((".pyx", ".pyc"))]
    assert about["packages"] == made.packages
    assert made.packages["penstock-broker"] == penstock.__version__
    assert {"msgspec", "structlog", "confluent-kafka"} <= made.packages.keys()
    assert not made.packages.keys() & {*BIG, "pyspark", "py4j", "pytest"}
    same = [tmp_path / name for name in ("one.tar", "two.tar")]
    for each in same:
        make_package(each, without=BIG)
    assert same[0].read_bytes() == same[1].read_bytes()
    with pytest.raises(CannotExport, match=r"must end in .tar.gz, .tgz, .tar, .zip"):
        make_package(tmp_path / "small.whl")


def test_the_command_prints_what_spark_submit_takes(tmp_path: Path, commands: Commands) -> None:
    out = tmp_path / "small.tar.gz"
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    leave_out = [word for name in BIG for word in ("--without", name)]
    printed = commands.run("spark", "package", str(out), *leave_out)
    first, second = printed.out.splitlines()
    assert first.startswith(f"{out}: ")
    assert second == (
        f"spark-submit --archives {out}#penstock --conf spark.executorEnv.PYTHONPATH=penstock …"
    )
    options = second.removeprefix("spark-submit ").removesuffix(" …")
    assert options.replace(str(out), "penstock-spark.tar.gz") in page
    with tarfile.open(out) as packed:
        assert "penstock/spark/package.py" in packed.getnames()
    assert "it exists already" in commands.run("spark", "package", str(out)).error_line()


def test_another_python_imports_what_executors_need_from_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "penstock-spark.tar"
    make_package(archive, without=(*UNUSED, "pandas", "numpy"))
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "penstock", filter="data")
    path = [tmp_path / "penstock", *sorted((SPARK / "python" / "lib").glob("*.zip"))]
    script = (
        "import pyspark_penstock, penstock.spark.kafka_source, penstock.spark.worker_daemon\n"
        "print(penstock.__file__)"
    )
    done = subprocess.run(  # noqa: S603
        [other_python(), "-c", script],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment(PYTHONPATH=os.pathsep.join(map(str, path))),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/penstock/penstock/__init__.py\n"


# --- A cluster ------------------------------------------------------------------------------------


def other_python() -> str:
    """A Python of the same version without Penstock, as executors have it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for place in (Path(sys.base_prefix, "bin"), Path("/usr/bin")):
        python = place / f"python{version}"
        if python.exists():
            script = "import importlib.util as u; print(u.find_spec('penstock'))"
            found = subprocess.run([python, "-c", script], check=False, capture_output=True)  # noqa: S603
            if found.stdout == b"None\n":
                return str(python)
    pytest.skip(f"there is no other Python {version}, without Penstock")


@pytest.fixture
def machines() -> Iterator[Machines]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Machines("services", "driver", "one", "two") as made:
        yield made


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.skipif(CLUSTER not in os.environ, reason="`make cluster` runs it: eight processes")
def test_executors_on_other_machines_work_with_the_archive(
    machines: Machines, tmp_path: Path
) -> None:
    python = other_python()
    try:
        fetch()
    except KafkaMissing as error:
        pytest.skip(f"Apache Kafka: {error}")
    archive = tmp_path / "penstock-spark.tar"
    make_package(archive, without=UNUSED)
    unpacked = tmp_path / "driver"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    host = machines.address("services")
    kafka = KafkaBroker(
        1,
        tmp_path / "kafka",
        [Ports(KAFKA_PORT, KAFKA_PORT + 1)],
        host=host,
        command=machines.command("services"),
    )
    spark = environment(
        SPARK_HOME=str(SPARK),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=SMALL,
        PYSPARK_PYTHON=python,
    )
    settings = NODE.format(host=host, kafka=KAFKA_PORT, flight=FLIGHT_PORT)
    (tmp_path / "node.toml").write_text(settings)
    (tmp_path / "job.py").write_text(JOB)
    log = (tmp_path / "output.txt").open("wb")
    try:
        kafka.start()
        launcher = SPARK / "bin" / "spark-class"
        deploy = "org.apache.spark.deploy"
        machines.start(
            "services", launcher, f"{deploy}.master.Master", "--host", host,
            "--port", MASTER_PORT, "--webui-port", 0, output=log, environment=spark,
        )  # fmt: skip
        machines.wait_for_port("services", MASTER_PORT, seconds=SECONDS_MAX)
        master = f"spark://{host}:{MASTER_PORT}"
        for name in ("one", "two"):
            machines.start(
                name, launcher, f"{deploy}.worker.Worker", "--host", machines.address(name),
                "--webui-port", 0, "--cores", 1, "--memory", "1g",
                "--work-dir", tmp_path / f"work-{name}", master,
                hidden=unpacked, output=log, environment=spark,
            )  # fmt: skip
        machines.wait_for_port("services", KAFKA_PORT, seconds=SECONDS_MAX)
        serve = (sys.executable, "-m", "penstock.cli", "serve", "--config", tmp_path / "node.toml")
        machines.start("services", *serve, "--data", tmp_path / "data", output=log)
        machines.wait_for_port("services", FLIGHT_PORT, seconds=SECONDS_MAX)
        done = _submit(machines, master, tmp_path, unpacked, spark)
    finally:
        kafka.kill()
        log.close()
    assert "all is there" in done.stdout, done.stderr[-6000:]


def _submit(
    machines: Machines, master: str, folder: Path, unpacked: Path, spark: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    driver, host = machines.address("driver"), machines.address("services")
    settings = {
        "spark.executorEnv.PYTHONPATH": "penstock",
        "spark.driver.host": driver,
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": SMALL,
        "spark.executor.extraJavaOptions": SMALL,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
    }
    command = machines.command(
        "driver", SPARK / "bin" / "spark-submit", "--master", master,
        "--archives", f"{folder / 'penstock-spark.tar'}#penstock",
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        folder / "job.py", f"grpc://{host}:{FLIGHT_PORT}", f"{host}:{KAFKA_PORT}", folder, ROWS,
    )  # fmt: skip
    return subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=folder,
        env={**spark, "SPARK_LOCAL_IP": driver, "PYTHONPATH": str(unpacked)},
    )
