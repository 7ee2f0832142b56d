"""Logs of every version that ever was are read, verified and replayed by this one.

Each folder here is named after the release that wrote it. `rows.jsonl` has its rows as that release
read them.
"""

import asyncio
import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.model import Kind
from penstock.protocols import PROTOCOLS
from penstock.storage.arrow.format.segment import FORMAT, HEAD_BYTES_MAX, parse_head
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from tests.golden.rows import row_of
from tests.support.commands import Commands
from tests.support.live import LiveBroker

GOLDEN = Path(__file__).parent
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "rows.jsonl").exists())
PUBLISHED = ("rheos1", "rheos2", "fleximq", "lamamq", "flight", "http")


def rows_of(version: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / version / "rows.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(version: str, tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / version / "log", tmp_path / "log")
    return tmp_path


def test_every_format_there_was_has_a_golden_log() -> None:
    formats = set()
    for each in VERSIONS:
        (segment, *_) = sorted((GOLDEN / each / "log" / "0").glob("*.arrows"))
        schema = pa.ipc.open_stream(segment).schema
        formats.add(int(schema.metadata[b"penstock.format"]))
    assert formats == set(range(1, FORMAT + 1))


def test_a_golden_log_has_every_protocol_and_kind(version: str) -> None:
    rows = rows_of(version)
    assert {row["protocol"] for row in rows} >= {*PROTOCOLS.labels, "flight"}
    assert {row["kind"] for row in rows} == {kind.label for kind in Kind}


def test_its_rows_are_those_that_its_version_read(version: str, data: Path) -> None:
    batches = plain_records(record_batches(LogView(data)))
    assert [row_of(row) for batch in batches for row in batch.to_pylist()] == rows_of(version)


def test_a_segment_says_by_itself_which_labels_it_has(version: str, data: Path) -> None:
    (segment,) = (data / "log" / "0").glob("*.arrows")
    head = parse_head(segment.read_bytes()[:HEAD_BYTES_MAX])
    assert {row["protocol"] for row in rows_of(version)} <= set(head.protocols)
    assert {row["kind"] for row in rows_of(version)} <= set(head.kinds)


def test_it_verifies(data: Path, commands: Commands) -> None:
    done = commands.run("log", "verify", "--data", data)
    assert done.code == 0, done


def test_messages_are_replayed_to_clients(version: str, data: Path) -> None:
    async def replay(broker: LiveBroker, topic: str, count: int) -> list[tuple[bytes, Any]]:
        url = f"tcp://{broker.address[0]}:{broker.address[1]}"
        async with (
            asyncio.timeout(10),
            penstock.connect(url, protocol="lamamq") as client,
            await client.subscribe(f"{topic}@earliest") as messages,
        ):
            found = [await anext(messages) for _ in range(count)]
        return [(each.value, dict(each.headers)) for each in found]

    with LiveBroker(data=data) as broker:
        for label in PUBLISHED:
            topic = f"golden/{label}"
            rows = [
                row
                for row in rows_of(version)
                if row["topic"] == topic and row["kind"] == "publish"
            ]
            if label == "fleximq":
                rows = [row for row in rows if not row["headers"]]  # what was routed is private
            expected = [
                (
                    base64.b64decode(row["value"]),
                    {each["key"]: base64.b64decode(each["value"]) for each in row["headers"]}
                    if label == "lamamq"
                    else {},
                )
                for row in rows
            ]
            assert asyncio.run(replay(broker, topic, len(rows))) == expected, label


def test_a_log_goes_on_behind_it(version: str, data: Path) -> None:
    async def publish() -> None:
        with LiveBroker(data=data) as broker:
            url = f"tcp://{broker.address[0]}:{broker.address[1]}"
            async with penstock.connect(url, protocol="lamamq") as client:
                await client.publish("golden/more", b"new")

    asyncio.run(publish())
    rows = [row for batch in record_batches(LogView(data)) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(len(rows_of(version)) + 1))
    assert rows[-1]["protocol"] == "lamamq"
