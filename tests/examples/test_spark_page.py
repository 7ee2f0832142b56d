"""The page about Spark tells the truth: its programs and commands run, its tables are the code's."""

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from penstock.spark import options
from penstock.spark.errors import InvalidOption
from penstock.spark.schema import RECORD
from tests.support import herald_bytes
from tests.support.commands import Commands

ROOT = Path(__file__).parents[2]
TLS = ROOT / "tests" / "support" / "tls"
PAGE = (ROOT / "docs" / "spark.md").read_text()
SECONDS_MAX = 300
READINGS = 20


BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for spoken, text in BLOCKS if spoken == language]


PROGRAMS = blocks("python")
BROKER_FILE, PIPELINE_FILE = blocks("toml")
COMMANDS = [line for block in blocks("") for line in block.splitlines()]


def table(header: str) -> list[list[str]]:
    """The rows of the page's table whose first heading is `header`."""
    _, _, found = PAGE.partition(f"\n| {header} |")
    lines = found.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class Place(NamedTuple):
    """Where the page's broker and its folders are in this test."""

    folder: Path
    address: str
    flight: str

    def put(self, text: str) -> str:
        for said, meant in (
            ("/var/lib/penstock", str(self.folder / "data")),
            ("/srv", str(self.folder / "srv")),
            ("grpc+tls://broker:7090", f"grpc://{self.flight}"),
            ("127.0.0.1:7090", self.flight),
            ("spark://spark-master:7077", "local[*]"),
            ("pipeline.toml", str(self.folder / "pipeline.toml")),
        ):
            text = text.replace(said, meant)
        return text


def command(line: str, *more: str) -> list[str]:
    name, *arguments = shlex.split(line)
    assert name == "penstock"
    return [sys.executable, "-m", "penstock.cli", *arguments, *more]


def serving(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Where a broker says that it listens, and that it serves tables."""
    found: dict[str, str] = {}
    done = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            found.update(re.findall(r"^\s+(listen|flight)\s+(?:tcp|grpc)://(\S+)", line))
            if len(found) == 2:
                done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(SECONDS_MAX), found
    return found["listen"], found["flight"]


async def publish(address: str) -> None:
    async with (
        penstock.connect(f"tcp://{address}", protocol="lamamq") as thermometer,
        penstock.connect(f"tcp://{address}", protocol="fleximq") as panel,
    ):
        for number in range(READINGS):
            await thermometer.publish(f"sensors/{number % 4}/temp", b"%d.5" % number)
        await panel.publish("alarms", b"door")
        # What comes behind it is not sensors'; one reading is none.
        await thermometer.publish("sensors/9/temp", b"broken")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("page")
    file = folder / "penstock.toml"
    text = BROKER_FILE.replace("0.0.0.0:7090", "127.0.0.1:0").replace(
        "127.0.0.1:7000", "127.0.0.1:0"
    )
    file.write_text(re.sub(r"^(certificate|key) = .*\n", "", text, flags=re.MULTILINE))
    line = COMMANDS[0].replace("/var/lib/penstock", str(folder / "data"))
    process = subprocess.Popen(  # noqa: S603
        command(line, "--config", str(file)), stdout=subprocess.PIPE, text=True
    )
    try:
        address, flight = serving(process)
        asyncio.run(publish(address))
        yield Place(folder, address, flight)
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
        assert process.stdout is not None
        process.stdout.close()


def test_every_program_runs_and_does_what_the_page_says(
    place: Place, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    captures = place.folder / "srv" / "captures"
    captures.mkdir(parents=True)
    data = herald_bytes.handshake_pub() + herald_bytes.publish(7, b"hot") + b"\xfe"
    (captures / "plant-7.herald.c2s.bin").write_bytes(data)

    names: dict[str, Any] = {}
    shown = []
    for program in PROGRAMS:
        exec(compile(place.put(program), "docs/spark.md", "exec"), names)  # noqa: S102
        shown.append(capsys.readouterr().out)
    assert names["spark"] is spark
    assert re.search(r"sensors/3/temp\|\s*lamamq\|\s*5\|", shown[0])
    assert names["hot"].count() == READINGS + 1
    assert all(f"sensors/{number}/temp" in shown[2] for number in range(4))
    assert names["everything"].count() == READINGS + 1
    assert re.search(r"sensors/3/temp\|\s*5\|", shown[3])
    assert re.search(r"door\|", shown[4])
    assert re.search(r"plant-7\|alarms\|\s*1\|", shown[-1])
    assert "cut-short" in shown[-1]

    kept = spark.read.parquet(place.put("/srv/tables/sensors"))
    assert kept.count() == READINGS + 1
    all_rows = spark.read.format("penstock").load(place.put("/var/lib/penstock"))
    counts = {row["topic"]: row["count"] for row in all_rows.groupBy("topic").count().collect()}
    assert {name: counts[f"copies/{name}"] for name in counts if name.startswith("sensors/")} == {
        name: count for name, count in counts.items() if name.startswith("sensors/")
    }
    assert counts["totals/sensors/3/temp"] == 1
    hot = spark.read.parquet(place.put("/srv/tables/hot"))
    assert hot.count() == READINGS - 5  # 0.5 to 4.5 are not hot, and one reading is none
    assert sum(counts[name] for name in counts if name.startswith("hot/")) == READINGS - 5
    assert counts["alarms"] == 3  # of a client, of a batch, and of a batch with an epoch

    # What has a writer and an epoch does not come twice; what has none does.
    again = [program for program in PROGRAMS if "rows.write" in program]
    for program in again:
        exec(compile(place.put(program), "docs/spark.md", "exec"), names)  # noqa: S102
    after = spark.read.format("penstock").load(place.put("/var/lib/penstock"))
    assert after.where("topic = 'alarms'").count() == 4


def test_the_token_opens_what_its_rules_say_and_nothing_else(
    place: Place, spark: SparkSession
) -> None:
    reader = spark.read.format("penstock").option("endpoint", place.flight)
    allowed = reader.option("token", "change-me").option("subscribe", "sensors/#").load()
    assert allowed.count() == READINGS + 1
    with pytest.raises(PySparkException, match="may not subscribe"):
        reader.option("token", "change-me").option("subscribe", "#").load().count()
    with pytest.raises(PySparkException, match="refused"):
        reader.option("token", "guessed").load().count()


def test_the_commands_run(place: Place, spark: SparkSession, commands: Commands) -> None:
    assert spark is not None  # the commands use the session of this process
    (place.folder / "pipeline.toml").write_text(place.put(PIPELINE_FILE))
    answers = []
    for line in COMMANDS[1:]:
        done = commands.run(*shlex.split(place.put(line))[1:])
        assert done.code == 0, (line, done.err)
        answers.append(done.out)
    _, status, query, by_flight = answers
    assert sorted(by_flight.splitlines()) == sorted(query.splitlines())
    assert re.search(rf"^temperature\s+{READINGS}\s", status, re.MULTILINE), status
    assert re.search(r"^dead_letters\s+1\s", status, re.MULTILINE), status
    assert re.search(r"^sensors/3/temp\s+5$", query, re.MULTILINE), query


def test_the_file_for_a_cluster_passes_the_check(tmp_path: Path) -> None:
    shutil.copy(TLS / "localhost.pem", tmp_path / "broker.pem")
    shutil.copy(TLS / "localhost.key", tmp_path / "broker.key")
    file = tmp_path / "penstock.toml"
    file.write_text(BROKER_FILE)
    done = subprocess.run(  # noqa: S603
        command("penstock serve --check --config", str(file)),
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env={},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


# --- Tables ---------------------------------------------------------------------------------------


def test_the_columns_are_the_records() -> None:
    assert [(row[0].strip("`"), row[1]) for row in table("column")] == [
        (field.name, field.dataType.simpleString()) for field in RECORD
    ]


def test_every_option_is_there_with_what_it_is_for() -> None:
    uses = {
        "reading": {"batch", "stream"},
        "batch": {"batch"},
        "stream": {"stream"},
        "writing": {"write", "stream write"},
        "writing a batch": {"write"},
    }
    said = {
        row[0].strip("`"): set().union(*(uses[each.strip()] for each in row[1].split(",")))
        for row in table("option")
    }
    taken = {
        "batch": options._BATCH,
        "stream": options._STREAM,
        "write": options._WRITE,
        "stream write": options._STREAM_WRITE,
    }
    assert said == {
        name: {use for use, names in taken.items() if name in names}
        for name in {name for names in taken.values() for name in names}
    }


KAFKA_OPTIONS = {
    "reading": {
        "assign", "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp",
        "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss",
        "includeHeaders", "minPartitions", "maxRecordsPerPartition", "kafka.bootstrap.servers",
        "kafka.group.id", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs", "kafka.*",
    },
    "batch": {"endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"},
    "stream": {"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"},
    "writing": {"topic", "includeHeaders", "kafka.bootstrap.servers", "kafka.*"},
}  # fmt: skip
"""The options of Spark's Kafka source and sink (4.x), as its guide and its code have them."""


def test_every_option_of_sparks_kafka_source_is_compared() -> None:
    rows = {row[0].strip("`"): row[1:] for row in table("option of Kafka")}
    said = {
        use: {name for name, row in rows.items() if use in row[0].split(", ")}
        for use in KAFKA_OPTIONS
    }
    assert said == KAFKA_OPTIONS
    for name, (_, here, note) in rows.items():
        assert here in {"same", "differs", "not there"}, name
        taken = name in options.OPTIONS or name == "kafka.*"  # beside kafka.bootstrap.servers
        assert taken is (here != "not there"), name
        assert note or here == "same", name
        if here == "not there":
            for streaming in (False, True):
                given = {"path": "/data", name.replace("*", "any"): "1"}
                with pytest.raises(InvalidOption, match="Kafka"):
                    options.read_options(given, streaming=streaming)


def test_the_settings_are_those_that_a_session_has(spark: SparkSession) -> None:
    for name, value, _ in table("setting"):
        found = spark.conf.get(name.strip("`"))
        if value.startswith("`"):
            assert found == value.strip("`"), name
