"""Lines in the log: kept, replayed to all protocols, and older logs read as they were written."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import penstock
from penstock.protocols import PROTOCOLS, Protocol
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import record_batches
from tests.support.live import LiveBroker

GOLDEN = Path(__file__).parents[2] / "golden"


def url(broker: LiveBroker) -> str:
    return f"tcp://{broker.address[0]}:{broker.address[1]}"


async def history(broker: LiveBroker, protocol: Protocol, topic: str, count: int) -> list[bytes]:
    async with (
        asyncio.timeout(10),
        penstock.connect(url(broker), protocol=protocol) as client,
        await client.subscribe(topic + "@earliest") as messages,
    ):
        return [(await anext(messages)).value for _ in range(count)]


@pytest.mark.parametrize(
    "reader", [each for each in PROTOCOLS if not each.carries.channels], ids=str
)
def test_messages_are_replayed_after_a_restart(tmp_path: Path, reader: Protocol) -> None:
    values = [b"one", b"", bytes(range(256))]

    async def publish() -> None:
        with LiveBroker(data=tmp_path) as broker:
            async with penstock.connect(url(broker), protocol="lines") as client:
                await client.publish_many("kept/lines", values)

    asyncio.run(publish())
    with LiveBroker(data=tmp_path) as broker:
        assert asyncio.run(history(broker, reader, "kept/lines", 3)) == values


def test_records_name_it(tmp_path: Path) -> None:
    async def publish() -> None:
        with LiveBroker(data=tmp_path) as broker:
            for protocol in PROTOCOLS:
                async with penstock.connect(url(broker), protocol=protocol, name="me") as client:
                    if protocol.carries.topics_created:
                        broker.call(lambda: broker.server.broker.topics.intern("channel/1"))
                    await client.publish("channel/1", protocol.label.encode())

    asyncio.run(publish())
    rows = [row for batch in record_batches(LogView(tmp_path)) for row in batch.to_pylist()]
    assert {row["value"].decode(): row["protocol"] for row in rows} == {
        label: label for label in PROTOCOLS.labels
    }


@pytest.mark.parametrize("version", sorted(path.parent.name for path in GOLDEN.glob("*/log")))
def test_a_log_of_five_protocols_reads_as_it_was_written(tmp_path: Path, version: str) -> None:
    shutil.copytree(GOLDEN / version / "log", tmp_path / "log")
    expected = list(map(json.loads, (GOLDEN / version / "rows.jsonl").read_text().splitlines()))
    rows = [row for batch in record_batches(LogView(tmp_path)) for row in batch.to_pylist()]
    assert [(row["protocol"], row["kind"]) for row in rows] == [
        (row["protocol"], row["kind"]) for row in expected
    ]
    with LiveBroker(data=tmp_path) as broker:
        values = asyncio.run(history(broker, PROTOCOLS["lines"], "golden/flight", 2))
    assert values == [b"value of flight", b""]
