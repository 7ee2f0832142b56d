"""The page about the pipeline tells the truth: its file is right, its commands and programs run."""

import asyncio
import contextlib
import datetime as dt
import io
import json
import os
import re
import shlex
import signal
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import ConfigError
from penstock.pipeline.config import WarehouseConfig
from penstock.pipeline.config_loading import load
from penstock.pipeline.silver import ERROR, silver
from penstock.pipeline.warehouse import Warehouse
from tests.support.commands import Commands
from tests.support.flight import serve_tables
from tests.support.live import LiveBroker
from tests.support.pipeline_records import frame, record
from tests.support.schema_registry import SchemaRegistry
from tests.support.served import until

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILE, MERGED, ORDERS, AVRO, JSON_SCHEMA, REGISTRY, PARTITIONED = (
    text for language, text in BLOCKS if language == "toml"
)
ORDER, ORDER_ROWS, AVRO_SCHEMA, ORDER_SCHEMA = (
    text for language, text in BLOCKS if language == "json"
)
READERS, STAGES = (text for language, text in BLOCKS if language == "python")
COMMANDS = next(text for _, text in BLOCKS if text.startswith("penstock ")).splitlines()
SECONDS_MAX = 120.0
READINGS = 5


class Place(NamedTuple):
    """Where the page's files are in this test, and its broker."""

    folder: Path
    broker: LiveBroker

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.toml"

    def put(self, program: str) -> str:
        """A program of the page with the folders of the test: Spark's own folder is another."""
        for name in ("penstock-data", "warehouse/", "pipeline.toml"):
            program = program.replace(f'"{name}', f'"{self.folder}/{name}')
        return program


async def publish(url: str, *values: str) -> None:
    async with penstock.connect(url, protocol="lamamq") as client:
        for value in values:
            await client.publish("sensors/17/temp", value.encode())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    data = tmp_path / "penstock-data"
    with LiveBroker(data=data) as broker:
        endpoint = serve_tables(broker, data)
        queries = tmp_path / "queries"
        queries.mkdir()
        (queries / "busiest.sql").write_text(
            "select topic, sum(messages) n from traffic group by 1"
        )
        here = Place(tmp_path, broker)
        here.file.write_text(FILE.replace("grpc://127.0.0.1:7090", endpoint))
        reading = '{{"values": {{"temp": {}}}, "measured": 1794700000000, "tags": ["a"]}}'
        values = [reading.format(number) for number in range(READINGS)]
        asyncio.run(publish("tcp://{}:{}".format(*broker.address), *values, "broken"))
        yield here


@contextlib.contextmanager
def interrupted_when_done(folder: Path) -> Iterator[None]:
    """Send this process SIGTERM once a pipeline that runs in it has all messages."""
    bronze = Warehouse(WarehouseConfig(folder=str(folder))).bronze()

    def is_done() -> bool:
        return bronze.exists() and bronze.rows() == READINGS + 1

    def watch() -> None:
        until(is_done, "bronze", seconds_max=SECONDS_MAX, look_seconds=0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join(SECONDS_MAX)


def test_the_commands_and_programs_do_what_the_page_says(
    place: Place,
    spark: SparkSession,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = Commands(capfd, monkeypatch)
    monkeypatch.setenv("PENSTOCK_DATA__FOLDER", str(place.folder / "penstock-data"))

    def run(line: str) -> str:
        _, *arguments = shlex.split(line, comments=True)
        if arguments[0] == "pipeline" and "--config" not in arguments:
            arguments += ["--config", "pipeline.toml"]
        done = commands.run(*(each.replace("pipeline.toml", str(place.file)) for each in arguments))
        assert done.code == 0, (line, done.err)
        return done.out

    forever, once, status, rebuild, check, upkeep, replay, query = COMMANDS
    with interrupted_when_done(place.folder / "warehouse"):
        run(forever)
    run(once)
    said = run(status)
    assert re.search(rf"^temps\s+{READINGS}\s", said, re.MULTILINE), said
    assert re.search(r"^dead_letters\s+1\s", said, re.MULTILINE), said
    assert re.search(r"^busiest\s+1\s", said, re.MULTILINE), said
    run(rebuild)
    for line in upkeep.partition("#")[0].split(";"):
        run(line)
    run(check)
    assert re.search(rf"^temps\s+{READINGS}\s", run(status), re.MULTILINE)
    assert run(replay).endswith("temps: 0 replayed, 1 left\n")  # after events of the broker
    assert re.search(rf"^sensors/17/temp\s+{READINGS + 1}$", run(query), re.MULTILINE)

    published = run("penstock log read penstock/traffic --value raw").splitlines()
    assert json.loads(published[-1])["messages"] == READINGS + 1

    names: dict[str, Any] = {}
    capfd.readouterr()
    exec(compile(place.put(READERS), "docs/pipeline.md", "exec"), names)  # noqa: S102
    assert "celsius" in capfd.readouterr().out
    exec(compile(place.put(STAGES), "docs/pipeline.md", "exec"), names)  # noqa: S102
    shown = capfd.readouterr().out
    assert names["spark"] is spark
    assert shown.count("sensors/17/temp") >= READINGS + 1
    assert "no JSON object" in shown


def test_the_other_source_of_the_file_is_for_those_who_publish_nothing(tmp_path: Path) -> None:
    by_path = re.sub(r'^endpoint = .*\n# (path = "[^"]*")', r"\1", FILE, flags=re.MULTILINE)
    file = tmp_path / "pipeline.toml"
    file.write_text(by_path)
    with pytest.raises(ConfigError, match=r"source\.endpoint"):
        load(file)
    file.write_text(by_path.partition("[[publish]]")[0])
    assert load(file).source.path == str(tmp_path / "penstock-data")


def test_the_merged_table_of_the_page_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[source]\npath = "penstock-data"\n\n' + MERGED)
    (table,) = load(file).silver
    assert table.merge is not None
    assert list(table.merge.key) == ["id"]


def decoded(
    spark: SparkSession, folder: Path, settings: str, payload: bytes, topic: str
) -> list[dict[str, Any]]:
    """Return the rows of a message in the table of an example."""
    (folder / "reading.avsc").write_text(AVRO_SCHEMA)
    (folder / "order.schema.json").write_text(ORDER_SCHEMA)
    file = folder / "pipeline.toml"
    file.write_text(settings)
    config = load(file)
    (schema,) = config.silver
    records = frame(spark, [record(0, payload, topic=topic)])
    found = silver(records, schema, config.registry).orderBy(*schema.positions, "offset")
    names = [*schema.positions, *(field.name for field in schema.field)]
    names += [name for name in schema.partition_columns if name not in (*names, "day")]
    rows = [row.asDict(recursive=True) for row in found.select(*names, ERROR).collect()]
    assert [row.pop(ERROR) for row in rows] == [None] * len(rows)
    return rows


def avro_payload() -> bytes:
    moment = dt.datetime(2026, 11, 16, 9, 30, tzinfo=dt.UTC)
    value = {"deviceId": "d", "at": moment, "price": Decimal("1.125"), "samples": [0.5]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO_SCHEMA)), value)
    return out.getvalue()


def test_an_order_becomes_the_rows_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    rows = decoded(spark, tmp_path, ORDERS, ORDER.encode(), "shop/orders")
    expected = [
        {**row, "price": Decimal(row["price"])}
        for row in json.loads(ORDER_ROWS)
    ]  # fmt: skip
    assert rows == expected


def test_schema_files_and_the_registry_of_the_page_decode_messages(
    spark: SparkSession, tmp_path: Path
) -> None:
    (row,) = decoded(spark, tmp_path, AVRO, avro_payload(), "plant/a/reading")
    assert row.pop("at").astimezone(dt.UTC).hour == 9
    assert row == {"device_id": "d", "price": Decimal("1.125"), "samples": [0.5]}
    order = b'{"orderId": 1, "placed": null, "lines": [{"sku": "s", "count": 2}]}'
    assert decoded(spark, tmp_path, JSON_SCHEMA, order, "shop/orders") == [
        {"order_id": 1, "placed": None, "lines": [{"sku": "s", "count": 2}]}
    ]
    with SchemaRegistry() as registry:
        registry.put(5, AVRO_SCHEMA)
        settings = REGISTRY.replace("http://127.0.0.1:8081", registry.url)
        payload = b"\x00\x00\x00\x00\x05" + avro_payload()
        rows = decoded(spark, tmp_path, settings, payload, "plant/a/reading")
        assert rows == [{"device": "d", "samples": [0.5]}]


def test_the_partitions_of_the_page_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    payload = b'{"site": "graz", "sent_at": "2026-11-16T09:30:00Z", "device": "d"}'
    (row,) = decoded(spark, tmp_path, PARTITIONED, payload, "plant/a/reading")
    assert (row["site"], row["sent_at_day"]) == ("graz", dt.date(2026, 11, 16))
