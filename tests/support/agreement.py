"""What a scan kernel should find in a buffer, worked out with the plain codecs.

For each protocol: the rows of the longest run of publish frames at the start of a buffer and where
it ends, and the frames that deliver those rows, each by the plain encoder.
"""

import array
import dataclasses
from collections.abc import Iterator
from typing import Any

from penstock._kernels import batch as batches
from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.topics import TopicTable
from penstock.errors import WireError
from penstock.limits import BATCH_SENDERS_MAX, TOPIC_NAME_BYTES_MAX
from penstock.model import ByteOrder, binary_topic_name, is_publishable, topic_name_from_binary
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.replay import ends_in_replay
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Decoder
from penstock.wire.fleximq.payloads import publication, raw_value, wrap_value
from penstock.wire.rheos import OpCode

SENDER = batches.Sender(bytes(range(0x80, 0x90)), 1000)
TIMESTAMP_US = 1_700_000_000_123_456
FIRST_MESSAGE_ID = 77
UNBOUND_CHANNEL = 13


@dataclasses.dataclass(frozen=True)
class Row:
    """One published message, as every kernel sees it."""

    topic: str
    value: bytes
    sender: bytes = SENDER.uuid
    frame: bytes = b""
    headers: tuple[tuple[str, bytes], ...] = ()
    message_id: int = 0
    created: int = 0
    status: int | None = None
    payload_type: lamamq.PayloadType | None = None


def new_topics() -> TopicTable:
    """Every herald channel but one is bound, each to its default name."""
    topics = TopicTable()
    for channel in range(256):
        if channel != UNBOUND_CHANNEL:
            topics.bind_channel(channel, f"channel/{channel}")
    return topics


# --- What the plain codec finds ------------------------------------------------------------------


def _plain_decoder(protocol: Protocol, order: ByteOrder) -> Decoder[Any]:
    match protocol.label:
        case "rheos1":
            return rheos1.BrokerDecoder()
        case "rheos2":
            return rheos2.BrokerDecoder()
        case "fleximq":
            return fleximq.BrokerDecoder()
        case "herald":
            return herald.Decoder(order=order)
        case "lamamq":
            decoder = lamamq.BrokerDecoder(order=order)
            handshake = lamamq.encode(lamamq.Authentication("a", b"k"), order=order)
            decoder.feed(handshake + lamamq.encode(lamamq.VersionChoice(1, 0), order=order))
            assert len(list(decoder)) == 2
            return decoder


def _row(packet: Any, frame: bytes) -> Row | None:
    match packet:
        case rheos1.Request(client_id, OpCode.PUBLISH, name, payload):
            return Row(topic_name_from_binary(name), payload, client_id)
        case rheos2.Event(client_id, OpCode.PUBLISH, name, data):
            return Row(topic_name_from_binary(name), data, client_id, frame)
        case fleximq.Message(fleximq.MessageType.PUB, SENDER.number, header, payload):
            if header.routing is not None or header.topic is None:
                return None
            return Row(header.topic, raw_value(payload), frame=frame, status=header.status)
        case herald.Publish(channel, message) if channel != UNBOUND_CHANNEL:
            return Row(f"channel/{channel}", message)
        case lamamq.Push(message_id, message):
            return Row(
                message.routing_key,
                message.payload,
                frame=frame,
                headers=message.headers,
                message_id=message_id,
                created=message.created_at,
                payload_type=message.payload_type,
            )
    return None


def plain_run(protocol: Protocol, data: bytes, order: ByteOrder) -> tuple[list[Row], int]:
    """The rows of the run at the start of `data`, and where it ends."""
    decoder = _plain_decoder(protocol, order)
    rows: list[Row] = []
    senders: set[bytes] = set()
    start = 0
    while True:
        try:
            step = decoder.decode_at(data, start)
        except WireError:
            return rows, start
        if step is None:
            return rows, start
        packet, end = step
        row = _row(packet, data[start:end])
        if (
            row is None
            or not is_publishable(row.topic)
            or ends_in_replay(row.topic)
            or len(row.topic.encode()) > TOPIC_NAME_BYTES_MAX
            or (len(senders | {row.sender}) > BATCH_SENDERS_MAX)
        ):
            return rows, start
        rows.append(row)
        senders.add(row.sender)
        start = end


# --- What the kernel finds -----------------------------------------------------------------------


def kernel_scan(
    protocol: Protocol,
    data: bytes,
    order: ByteOrder,
    *,
    start: int = 0,
    batch: batches.Batch | None = None,
    topics: TopicTable | None = None,
) -> tuple[batches.Batch, TopicTable, int]:
    batch = batches.Batch() if batch is None else batch
    batch.timestamp_us = TIMESTAMP_US
    topics = new_topics() if topics is None else topics
    match protocol.label:
        case "rheos1":
            end = rheos1_kernel.scan(data, start, batch, topics, SENDER)
        case "rheos2":
            end = rheos2_kernel.scan(data, start, batch, topics, SENDER)
        case "fleximq":
            headers = fleximq_kernel.HeaderCache(publication, capacity=4)
            end = fleximq_kernel.scan(data, start, batch, topics, SENDER, headers=headers)
        case "herald":
            end = herald_kernel.scan(data, start, batch, topics, SENDER, order=order)
        case "lamamq":
            end = lamamq_kernel.scan(data, start, batch, topics, SENDER, order=order)
    return batch, topics, end


def kernel_row(batch: batches.Batch, topics: TopicTable, index: int) -> Row:
    headers = batch.headers(index)
    return Row(
        topics.name(batch.topic_id(index)),
        batch.value(index),
        batch.sender(index).uuid,
        batch.frame(index) or b"",
        tuple(_headers(headers, batch.order)) if headers is not None else (),
        batch.message_id(index) or 0,
        batch.created(index) or 0,
        batch.status(index),
    )


def _headers(data: bytes, order: ByteOrder) -> Iterator[tuple[str, bytes]]:
    count, at = int.from_bytes(data[:2], order), 2
    parts = []
    for _ in range(2 * count):
        size = int.from_bytes(data[at : at + 4], order)
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(data)
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        yield key.decode(), value


# --- Deliveries ----------------------------------------------------------------------------------

ORDERS: tuple[ByteOrder, ...] = ("little", "big")
AUDIENCES: list[tuple[Protocol, ByteOrder]] = [
    (RHEOS1, "little"),
    (RHEOS2, "little"),
    (FLEXIMQ, "big"),
    (HERALD, "little"),
    (HERALD, "big"),
    (LAMAMQ, "little"),
    (LAMAMQ, "big"),
]
SOURCES = AUDIENCES


def plain_delivery(
    source: Protocol, target: Protocol, order: ByteOrder, row: Row, position: int
) -> bytes:
    """The frame that delivers `row`, by the plain encoder."""
    match target.label:
        case "rheos1":
            return rheos1.encode(rheos1.Response(row.sender, row.value))
        case "rheos2":
            if source is RHEOS2:
                return row.frame
            name = binary_topic_name(row.topic)
            return rheos2.encode(rheos2.Event(row.sender, OpCode.PUBLISH, name, row.value))
        case "fleximq":
            if source is FLEXIMQ:
                return row.frame[:6] + bytes(16) + row.frame[22:]
            header = fleximq.Header(topic=row.topic)
            return fleximq.encode(
                fleximq.Message(
                    fleximq.MessageType.PUB, SENDER.number, header, wrap_value(row.value)
                )
            )
        case "herald":
            channel = int(row.topic.removeprefix("channel/"))
            return herald.encode(herald.Message(channel, TIMESTAMP_US, row.value), order=order)
        case "lamamq":
            payload_type = row.payload_type
            if payload_type is None:
                payload_type = lamamq.PayloadType.BUFFER if row.value else lamamq.PayloadType.EMPTY
            created = row.created if source is LAMAMQ else TIMESTAMP_US // 1_000_000
            message = lamamq.Message(created, row.topic, row.headers, payload_type, row.value)
            message_id = lamamq.BROKER_ID_BIT | (FIRST_MESSAGE_ID + position)
            return lamamq.encode(lamamq.Forward(message_id, message), order=order)


def kernel_encode(
    target: Protocol,
    order: ByteOrder,
    batch: batches.Batch,
    topics: TopicTable,
    rows: "memoryview[int] | None" = None,
) -> bytes:
    match target.label:
        case "rheos1":
            return rheos1_kernel.encode(batch, topics, rows=rows)
        case "rheos2":
            return rheos2_kernel.encode(batch, topics, rows=rows)
        case "fleximq":
            return fleximq_kernel.encode(batch, topics, rows=rows)
        case "herald":
            return herald_kernel.encode(batch, topics, order=order, rows=rows)
        case "lamamq":
            return lamamq_kernel.encode(
                batch, topics, order=order, rows=rows, first_message_id=FIRST_MESSAGE_ID
            )


def deliverable(target: Protocol, row: Row) -> bool:
    """Whether the frames of `target` can carry `row`."""
    if target is FLEXIMQ:
        return len(row.topic.encode()) <= 65_536 - 10
    if target is not HERALD:
        return True
    channel = row.topic.removeprefix("channel/")
    return (
        channel != row.topic
        and channel.isascii()
        and channel.isdecimal()
        and str(int(channel)) == channel
        and int(channel) < 256
        and int(channel) != UNBOUND_CHANNEL
        and len(row.value) <= 1_048_576 - 9
    )


def assert_kernel_agrees(protocol: Protocol, data: bytes, order: ByteOrder) -> int:
    """Scan and all encodes of `data` are what the plain codec makes of it; return the run's rows."""
    expected, expected_end = plain_run(protocol, data, order)
    batch, topics, end = kernel_scan(protocol, data, order)
    assert end == expected_end, (end, expected_end)
    assert len(batch) == len(expected)
    for index, row in enumerate(expected):
        found = kernel_row(batch, topics, index)
        assert found == dataclasses.replace(row, payload_type=None), index
    for target, target_order in AUDIENCES:
        routes = array.array("I", [0]) * len(topics)  # 1 where this audience gets the topic
        for row in expected:
            identifier = topics.find(row.topic)
            assert identifier is not None
            routes[identifier] |= deliverable(target, row)
        longest = 1_048_576 - 9 if target is HERALD else 0xFFFFFFFF
        rows = batch.select(routes, b"\x00\x01", value_bytes_max=longest)
        delivered = [row for row in expected if deliverable(target, row)]
        assert len(rows) == len(delivered)
        frames = kernel_encode(target, target_order, batch, topics, rows)
        assert frames == b"".join(
            plain_delivery(protocol, target, target_order, row, position)
            for position, row in enumerate(delivered)
        )
        if len(rows) == len(batch):
            assert kernel_encode(target, target_order, batch, topics) == frames
    return len(expected)
