"""The Block: rows of any protocol come out as the record schema says, read by Arrow."""

import random
import uuid
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.batch import Batch
from penstock._kernels.block import Block, TopicSlots
from penstock._kernels.topics import TopicTable
from penstock.limits import SCAN_NEW_NAMES_MAX
from penstock.model import ByteOrder, Form, Kind, message_id
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.storage.arrow.format import segment
from penstock.wire import fleximq, lamamq
from tests.support.agreement import SENDER
from tests.support.publishes import UUIDS, publish

LOG_ID = 0xA1B2C3D4E5F6
TAKEN_US = 1_763_000_000_123_456


@pytest.fixture
def topics() -> TopicTable:
    table = TopicTable()
    for channel in range(256):
        table.bind_channel(channel, f"channel/{channel}")
    return table


def scan(frames: bytes, protocol: Protocol, order: ByteOrder, topics: TopicTable) -> Batch:
    batch = Batch()
    match protocol.label:
        case "rheos1":
            end = rheos1_kernel.scan(frames, 0, batch, topics, SENDER)
        case "rheos2":
            end = rheos2_kernel.scan(frames, 0, batch, topics, SENDER)
        case "fleximq":
            headers = fleximq_kernel.HeaderCache(fleximq.publication)
            end = fleximq_kernel.scan(frames, 0, batch, topics, SENDER, headers=headers)
        case "herald":
            end = herald_kernel.scan(frames, 0, batch, topics, SENDER, order=order)
        case "lamamq":
            end = lamamq_kernel.scan(frames, 0, batch, topics, SENDER, order=order)
    assert end == len(frames)
    batch.timestamp_us = TAKEN_US
    return batch


def rows_of(block: Block, base_offset: int = 0, partition: int = 0) -> list[dict[str, Any]]:
    """What Arrow reads of a segment that has only this block."""
    head = segment.head(
        LOG_ID,
        partition=partition,
        base_offset=base_offset,
        previous_end=base_offset,
        previous_crc=0,
    )
    columns = segment.Columns(*block.finish(base_offset, log_id=LOG_ID, partition=partition))
    row_group = segment.encode_row_group(columns, previous=0, synced=0)
    parts = [head, *map(bytes, row_group.buffers), segment.END_OF_STREAM]
    table = pa.ipc.open_stream(b"".join(parts)).read_all()
    table.validate(full=True)
    return table.to_pylist()


def new_block(**bounds: int) -> Block:
    return Block(TopicSlots(), **bounds)


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_a_row_is_what_was_published(
    protocol: Protocol, order: ByteOrder, topics: TopicTable
) -> None:
    values = [b"", b"one", b"\x00\xff" * 200, b"x" * 31, b"y" * 32, b"z" * 257]
    frames = b"".join(
        publish(protocol, order, channel=number % 3, value=value)
        for number, value in enumerate(values)
    )
    batch = scan(frames, protocol, order, topics)
    block = new_block()
    assert block.append(batch, topics, 0, b"meter-7", durability=2) == len(values)
    batch.clear()

    rows = rows_of(block, base_offset=1000)

    assert [row["value"] for row in rows] == values
    assert [row["topic"] for row in rows] == [f"channel/{n % 3}" for n in range(len(values))]
    assert [row["offset"] for row in rows] == list(range(1000, 1000 + len(values)))
    rheos = protocol in (RHEOS1, RHEOS2)
    for number, row in enumerate(rows):
        identifier = message_id(LOG_ID, partition=0, offset=1000 + number)
        assert row["message_id"] == str(uuid.UUID(bytes=identifier))
        assert row["key"] is None
        assert row["partition"] == 0
        assert row["timestamp"] == datetime.fromtimestamp(TAKEN_US / 1e6, UTC)
        assert row["timestampType"] == 1
        assert row["headers"] == []
        assert row["protocol"] == protocol.label
        assert row["kind"] == "publish"
        assert row["sender"] == (str(uuid.UUID(bytes=UUIDS[1])) if rheos else "meter-7")
        assert row["correlation"] is None
        assert row["status"] is None
        assert row["client"] == SENDER.number
        lama = protocol is LAMAMQ
        assert row["created"] == (datetime.fromtimestamp(1_600_000_000, UTC) if lama else None)


def test_each_rheos_row_has_its_own_sender(topics: TopicTable) -> None:
    topics.intern("t")
    frames = b"".join(publish(RHEOS2, "little", topic="t", sender=UUIDS[n]) for n in (2, 0, 2, 1))
    block = new_block()
    block.append(scan(frames, RHEOS2, "little", topics), topics, 0, b"", durability=2)
    senders = [row["sender"] for row in rows_of(block)]
    assert senders == [str(uuid.UUID(bytes=UUIDS[n])) for n in (2, 0, 2, 1)]


@pytest.mark.parametrize("order", ["little", "big"])
def test_lamamq_rows_keep_headers_and_the_type_of_their_payload(
    order: ByteOrder, topics: TopicTable
) -> None:
    kinds = [lamamq.PayloadType.BUFFER, lamamq.PayloadType.EMPTY, lamamq.PayloadType.STRING]
    headers: list[tuple[tuple[str, bytes], ...]] = [
        (),
        (("a", b"1"), ("é", b"")),
        (("b", b"\xff"),),
    ]
    frames = b"".join(
        publish(LAMAMQ, order, value=b"text", headers=each, payload_type=kind)
        for each, kind in zip([*headers, ()], [*kinds, kinds[0]], strict=True)
    )
    block = new_block()
    block.append(scan(frames, LAMAMQ, order, topics), topics, 0, b"shop", durability=2)
    rows = rows_of(block)
    assert [[(h["key"], h["value"]) for h in row["headers"]] for row in rows] == [
        list(each) for each in [*headers, ()]
    ]
    assert [row["form"] for row in rows] == [Form.PLAIN, Form.EMPTY, Form.TEXT, Form.PLAIN]


def test_fleximq_rows_keep_how_their_value_was_wrapped_and_their_status(
    topics: TopicTable,
) -> None:
    cases = [
        (b"\xa5hello", None, b"hello", Form.TEXT),
        (b"\xd9\x03abc", 200, b"abc", Form.TEXT),
        (b"\xc4\x02\x00\x01", None, b"\x00\x01", Form.BINARY),
        (b"\x93\x01\x02\x03", 0, b"\x93\x01\x02\x03", Form.MESSAGEPACK),
        (b"\xc0", None, b"\xc0", Form.MESSAGEPACK),
        (b"\xa0", 65535, b"", Form.TEXT),
    ]
    frames = b"".join(
        publish(FLEXIMQ, "big", topic="t", payload=payload, status=status)
        for payload, status, _, _ in cases
    )
    block = new_block()
    block.append(scan(frames, FLEXIMQ, "big", topics), topics, 0, b"1001", durability=2)
    rows = rows_of(block)
    assert [row["value"] for row in rows] == [value for _, _, value, _ in cases]
    assert [row["form"] for row in rows] == [form for _, _, _, form in cases]
    assert [row["status"] for row in rows] == [status for _, status, _, _ in cases]


def test_rows_of_several_protocols_and_records_share_a_block(topics: TopicTable) -> None:
    block = new_block()
    for protocol in PROTOCOLS:
        frames = publish(protocol, "big", channel=9, value=protocol.label.encode())
        assert block.append(scan(frames, protocol, "big", topics), topics, 0, b"s", durability=2)
        assert block.append_record(
            protocol=FLEXIMQ.number,
            kind=Kind.REQUEST,
            topic=b"",
            value=b"question",
            sender=b"1001",
            client=1001,
            timestamp_us=TAKEN_US,
            form=Form.MESSAGEPACK,
            private=True,
            headers=(("path", b"/x"), ("to", b"7")),
            correlation=b"01J",
            status=404,
            key=b"k",
        )
    rows = rows_of(block)
    published, asked = rows[::2], rows[1::2]
    assert [row["protocol"] for row in published] == [protocol.label for protocol in PROTOCOLS]
    assert {row["topic"] for row in published} == {"channel/9"}
    assert {row["correlation"] for row in published} == {None}
    for row in asked:
        assert (row["kind"], row["topic"], row["value"]) == ("request", "", b"question")
        assert (row["correlation"], row["status"], row["key"]) == ("01J", 404, b"k")
        assert row["headers"] == [{"key": "path", "value": b"/x"}, {"key": "to", "value": b"7"}]
        assert row["form"] == Form.MESSAGEPACK | 0x80


def test_a_batch_is_split_at_the_bounds_of_blocks(topics: TopicTable) -> None:
    values = [bytes([n]) * 10 for n in range(25)]
    frames = b"".join(publish(HERALD, "big", value=value) for value in values)
    batch = scan(frames, HERALD, "big", topics)
    slots = TopicSlots()
    found: list[bytes] = []
    taken = []
    while len(found) < 25:
        block = Block(slots, rows_max=4 if len(taken) % 2 else 1000, bytes_max=65)
        taken.append(block.append(batch, topics, len(found), b"s", durability=2))
        assert block.full
        found += [row["value"] for row in rows_of(block)]
        if len(found) == 22:
            block = Block(slots)
            assert block.append(batch, topics, 22, b"s", durability=2) == 3
            assert not block.full
            found += [row["value"] for row in rows_of(block)]
    assert taken == [7, 4, 7, 4]
    assert found == values


def test_a_full_block_takes_nothing_and_one_large_value_always_fits(topics: TopicTable) -> None:
    frames = publish(HERALD, "big", value=bytes(5000)) * 2
    batch = scan(frames, HERALD, "big", topics)
    block = new_block(bytes_max=100)
    assert block.append(batch, topics, 0, b"s", durability=2) == 1
    assert block.append(batch, topics, 1, b"s", durability=2) == 0


def test_headers_and_names_fill_a_block_too(topics: TopicTable) -> None:
    """Once broken: 65,536 messages with 64 KiB of headers, and no value, were one block."""
    block = new_block(bytes_max=10_000)
    taken = 0
    while not block.full:
        frames = publish(LAMAMQ, "big", headers=(("h", bytes(1_000)),), value=b"")
        block.append(scan(frames, LAMAMQ, "big", topics), topics, 0, b"s", durability=2)
        taken += 1
    assert taken == 10
    assert 10_000 <= block.value_bytes < 11_000
    assert 10_000 <= block.held_bytes < 11_000
    block.clear()
    frames = publish(FLEXIMQ, "big", topic="t" * 10_000, value=b"")
    block.append(scan(frames, FLEXIMQ, "big", topics), topics, 0, b"s", durability=2)
    assert block.full


def test_messages_without_a_value_are_held_too(topics: TopicTable) -> None:
    block = new_block()
    frames = publish(HERALD, "big", value=b"") * 1_000
    block.append(scan(frames, HERALD, "big", topics), topics, 0, b"s", durability=2)
    assert block.held_bytes >= 23 * 1_000


def test_a_cleared_block_starts_over(topics: TopicTable) -> None:
    block = new_block()
    frames = publish(LAMAMQ, "big", topic="first", headers=(("a", b"b"),), value=b"1")
    block.append(scan(frames, LAMAMQ, "big", topics), topics, 0, b"s", durability=2)
    block.clear()
    frames = publish(HERALD, "big", channel=3, value=b"2")
    block.append(scan(frames, HERALD, "big", topics), topics, 0, b"t", durability=2)
    (row,) = rows_of(block)
    assert (row["topic"], row["value"], row["sender"]) == ("channel/3", b"2", "t")
    assert row["headers"] == []
    assert row["created"] is None


def test_only_the_newest_block_of_a_log_takes_rows(topics: TopicTable) -> None:
    slots = TopicSlots()
    old, new = Block(slots), Block(slots)
    batch = scan(publish(HERALD, "big"), HERALD, "big", topics)
    with pytest.raises(RuntimeError, match="newest"):
        old.append(batch, topics, 0, b"s", durability=2)
    assert new.append(batch, topics, 0, b"s", durability=2) == 1


def test_the_strongest_durability_of_the_topics_is_told(topics: TopicTable) -> None:
    table = bytearray([2] * 256)
    table[1], table[2] = 0, 1

    def asked(*channels: int) -> int:
        frames = b"".join(publish(HERALD, "big", channel=each) for each in channels)
        block = new_block()
        batch = scan(frames, HERALD, "big", topics)
        block.append(batch, topics, 0, b"s", table, durability=0)
        return block.durability

    assert asked(1) == 0
    assert asked(1, 2) == 1
    assert asked(1, 2, 3) == 2
    topics.intern("beyond the table")
    frames = publish(FLEXIMQ, "big", topic="beyond the table")
    block = new_block()
    batch = scan(frames, FLEXIMQ, "big", topics)
    block.append(batch, topics, 0, b"s", table, durability=1)
    assert block.durability == 1


def test_as_many_topics_as_rows(topics: TopicTable) -> None:
    names = [f"device/{n}" for n in range(3000)]
    block = new_block()
    for first in range(0, len(names), SCAN_NEW_NAMES_MAX):
        some = names[first : first + SCAN_NEW_NAMES_MAX]
        frames = b"".join(publish(FLEXIMQ, "big", topic=n, value=n.encode()) for n in some)
        block.append(scan(frames, FLEXIMQ, "big", topics), topics, 0, b"s", durability=2)
    rows = rows_of(block)
    assert [row["topic"] for row in rows] == names
    assert [row["value"].decode() for row in rows] == names


@pytest.mark.parametrize("rows", [1, 24, 25, 3000])
def test_many_topics_in_another_order_than_they_were_made(topics: TopicTable, rows: int) -> None:
    names = [f"device/{n}" for n in range(3000)]
    for name in names:
        topics.intern(name)
    chosen = random.Random(rows).choices(names, k=rows)
    frames = b"".join(publish(RHEOS2, "big", topic=n, value=n.encode()) for n in chosen)
    batch = scan(frames, RHEOS2, "big", topics)
    block = new_block()
    for _ in range(2):
        block.append(batch, topics, 0, b"s", durability=2)
        assert [row["topic"] for row in rows_of(block)] == chosen
        block.clear()


def test_another_partition_than_the_first(topics: TopicTable) -> None:
    block = new_block()
    batch = scan(publish(HERALD, "big") * 3, HERALD, "big", topics)
    block.append(batch, topics, 0, b"s", durability=2)
    rows = rows_of(block, base_offset=5, partition=11)
    assert [row["partition"] for row in rows] == [11, 11, 11]
    identifier = message_id(LOG_ID, partition=11, offset=7)
    assert rows[2]["message_id"] == str(uuid.UUID(bytes=identifier))


@pytest.mark.parametrize("bounds", [{"rows_max": 0}, {"rows_max": 65_537}, {"bytes_max": 0}])
def test_bounds_that_arrow_could_not_hold_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="65,536"):
        new_block(**bounds)


def test_a_row_behind_the_batch_is_refused(topics: TopicTable) -> None:
    batch = scan(publish(HERALD, "big"), HERALD, "big", topics)
    with pytest.raises(IndexError):
        new_block().append(batch, topics, 2, b"s", durability=2)


def test_headers_fill_a_block_as_values_do(topics: TopicTable) -> None:
    frames = publish(LAMAMQ, "big", topic="t", headers=(("k", bytes(600)),), value=b"") * 5
    batch = scan(frames, LAMAMQ, "big", topics)
    block = new_block(bytes_max=1000)
    assert block.append(batch, topics, 0, b"s", durability=2) == 2
    assert block.full
    assert block.value_bytes >= 1200
    assert [len(row["headers"]) for row in rows_of(block)] == [1, 1]


@pytest.mark.parametrize(
    "row", [(1 << 20, 0, 1), (0xFFFFFFFF, 0, 1)], ids=["topic", "unknown topic"]
)
def test_a_row_outside_of_its_tables_is_refused(
    topics: TopicTable, row: tuple[int, int, int]
) -> None:
    batch = Batch()
    batch.fill(b"value", [(0, 0, 5), row], protocol=HERALD.number, order="big", sender=SENDER)
    block = new_block()
    with pytest.raises(ValueError, match="not inside"):
        block.append(batch, topics, 0, b"s", durability=2)
    assert len(block) == 0
