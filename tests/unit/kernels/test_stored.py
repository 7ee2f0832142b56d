"""Messages of the log are delivered as they were when they were live, or not at all.

Row groups are built by pyarrow, frames by the plain encoders: neither is the code under test.
"""

import array
import ctypes
import dataclasses
import mmap
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels import stored
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.core.sessions import sender_uuid
from penstock.errors import TopicTableFull
from penstock.limits import BATCH_ROWS_MAX
from penstock.model import ByteOrder, Form, Kind, binary_topic_name
from penstock.protocols import FLIGHT, Protocol, Source
from penstock.protocols import PROTOCOLS as REGISTRY
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.storage.schema import KINDS, PROTOCOLS, SCHEMA
from penstock.wire import fleximq, herald, lamamq, messagepack, rheos1, rheos2
from penstock.wire.fleximq.payloads import publication
from penstock.wire.rheos import OpCode
from tests.support.agreement import (
    AUDIENCES,
    FIRST_MESSAGE_ID,
    SOURCES,
    TIMESTAMP_US,
    kernel_encode,
    new_topics,
    plain_run,
)
from tests.support.publishes import UUIDS, publish

NUMBER = 1000
EACH_SOURCE = pytest.mark.parametrize(
    ("protocol", "order"), SOURCES, ids=[f"{p.label}-{o}" for p, o in SOURCES]
)
FORMS = {
    LAMAMQ: [Form.PLAIN, Form.EMPTY, Form.TEXT],
    FLEXIMQ: [Form.TEXT, Form.BINARY, Form.MESSAGEPACK],
}


@dataclasses.dataclass(frozen=True)
class Message:
    protocol: Source = HERALD
    value: bytes = b"value"
    topic: str = "channel/7"
    kind: Kind = Kind.PUBLISH
    form: Form = Form.PLAIN
    private: bool = False
    sender: str = "somebody"
    client: int = NUMBER
    timestamp_us: int = TIMESTAMP_US
    headers: tuple[tuple[str, bytes], ...] = ()
    created: int | None = None
    status: int | None = None


# --- A row group, by pyarrow -------------------------------------------------------------------------


@dataclasses.dataclass
class RowGroup:
    """The bytes of a row group, and where Arrow's buffers lie in them."""

    data: bytearray
    layout: list[int]
    topics: list[int]
    senders: list[int]
    count: int

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        columns: dict[str, list[Any]] = {
            "key": [None for _ in messages],
            "value": [message.value for message in messages],
            "partition": [0 for _ in messages],
            "offset": list(range(len(messages))),
            "timestamp": [message.timestamp_us for message in messages],
            "timestampType": [1 for _ in messages],
            "headers": [
                [{"key": key, "value": value} for key, value in message.headers]
                for message in messages
            ],
            "created": [
                None if message.created is None else message.created * 1_000_000
                for message in messages
            ],
            "correlation": [None for _ in messages],
            "status": [message.status for message in messages],
            "message_id": ["an id" for _ in messages],
            "client": [message.client for message in messages],
            "form": [message.form | message.private << 7 for message in messages],
        }
        topics = list(dict.fromkeys(message.topic for message in messages))
        senders = list(dict.fromkeys(message.sender for message in messages))
        indexed = {
            "topic": ([topics.index(message.topic) for message in messages], topics),
            "protocol": (
                [PROTOCOLS.index(message.protocol.label) for message in messages],
                PROTOCOLS,
            ),
            "kind": ([message.kind for message in messages], KINDS),
            "sender": ([senders.index(message.sender) for message in messages], senders),
        }
        row_group = cls(bytearray(), [], [], [], len(messages))
        for field in SCHEMA:
            if field.name in indexed:
                indices, words = indexed[field.name]
                column: Any = pa.DictionaryArray.from_arrays(
                    pa.array(indices, field.type.index_type), pa.array(words, pa.utf8())
                )
            else:
                column = pa.array(columns[field.name], field.type)
            for buffer in column.buffers():
                row_group.layout += row_group.place(buffer)
        _, offsets, data = pa.array(topics, pa.utf8()).buffers()
        row_group.topics = [*row_group.place(offsets), *row_group.place(data)]
        _, offsets, data = pa.array(senders, pa.utf8()).buffers()
        row_group.senders = [*row_group.place(offsets), *row_group.place(data)]
        return row_group

    def place(self, buffer: Any) -> tuple[int, int]:
        """Lay a buffer where Arrow would: at a multiple of eight."""
        if buffer is None:
            return 0, 0
        self.data += bytes(-len(self.data) % 8)
        start = len(self.data)
        self.data += buffer.to_pybytes()
        return start, buffer.size

    def load(self, batch: Batch, topics: TopicTable, data: Any = None) -> None:
        stored.load(
            batch,
            topics,
            bytes(self.data) if data is None else data,
            array.array("q", self.layout),
            tuple(self.topics),
            tuple(self.senders),
            stored.SegmentWords(PROTOCOLS, KINDS),
            count=self.count,
        )


def loaded(messages: Sequence[Message]) -> tuple[Batch, TopicTable]:
    batch, topics = Batch(), new_topics()
    RowGroup.of(messages).load(batch, topics)
    return batch, topics


def all_topics(topics: TopicTable) -> "array.array[int]":
    return array.array("I", [1]) * len(topics)


# --- Frames, by the plain encoders ---------------------------------------------------------------


def sender_of(message: Message) -> bytes:
    if message.protocol in (RHEOS1, RHEOS2):
        try:
            return uuid.UUID(message.sender).bytes
        except ValueError:
            pass
    return sender_uuid(message.client)


def payload_of(message: Message) -> bytes:
    """The fleximq payload that brings a message."""
    if message.protocol is FLEXIMQ and message.form is Form.MESSAGEPACK:
        return message.value
    if message.protocol is FLEXIMQ and message.form is Form.TEXT:
        return messagepack.encode(message.value.decode())
    return messagepack.encode(message.value)


def lamamq_message(message: Message) -> lamamq.Message:
    if message.protocol is LAMAMQ:
        assert message.created is not None
        payload_type = {
            Form.EMPTY: lamamq.PayloadType.EMPTY,
            Form.TEXT: lamamq.PayloadType.STRING,
            Form.PLAIN: lamamq.PayloadType.BUFFER,
        }[message.form]
        return lamamq.Message(
            message.created, message.topic, message.headers, payload_type, message.value
        )
    payload_type = lamamq.PayloadType.BUFFER if message.value else lamamq.PayloadType.EMPTY
    seconds = message.timestamp_us // 1_000_000
    return lamamq.Message(seconds, message.topic, (), payload_type, message.value)


def plain_frame(target: Protocol, order: ByteOrder, message: Message, position: int) -> bytes:
    match target.label:
        case "rheos1":
            return rheos1.encode(rheos1.Response(sender_of(message), message.value))
        case "rheos2":
            name = binary_topic_name(message.topic)
            event = rheos2.Event(sender_of(message), OpCode.PUBLISH, name, message.value)
            return rheos2.encode(event)
        case "fleximq":
            status = message.status if message.protocol is FLEXIMQ else None
            header = fleximq.Header(topic=message.topic, status=status)
            pub = fleximq.MessageType.PUB
            return fleximq.encode(fleximq.Message(pub, message.client, header, payload_of(message)))
        case "herald":
            channel = int(message.topic.removeprefix("channel/"))
            return herald.encode(
                herald.Message(channel, message.timestamp_us, message.value), order=order
            )
        case "lamamq":
            message_id = lamamq.BROKER_ID_BIT | (FIRST_MESSAGE_ID + position)
            forward = lamamq.Forward(message_id, lamamq_message(message))
            return lamamq.encode(forward, order=order)


def assert_delivered(messages: Sequence[Message], batch: Batch, topics: TopicTable) -> None:
    for target, order in AUDIENCES:
        assert kernel_encode(target, order, batch, topics) == b"".join(
            plain_frame(target, order, message, position)
            for position, message in enumerate(messages)
        ), target


# --- What is delivered ---------------------------------------------------------------------------


def one_of_each() -> list[Message]:
    headers = (("k", b"v"), ("kk", b"\xff"), ("", b""))
    rheos = str(uuid.UUID(bytes=UUIDS[1]))
    return [
        Message(RHEOS1, b"one", sender=rheos),
        Message(RHEOS2, b"two", sender=str(uuid.uuid4()), client=2**32 - 2),
        Message(RHEOS2, b"", sender=rheos, timestamp_us=1),
        Message(HERALD, b"three", topic="channel/0", client=1001, timestamp_us=2**51),
        Message(FLEXIMQ, b"four", form=Form.TEXT),
        Message(FLEXIMQ, b"\xff\x00", form=Form.BINARY, status=0),
        Message(FLEXIMQ, b"\x81\xa1a\x01", form=Form.MESSAGEPACK, status=127),
        Message(FLEXIMQ, b"", form=Form.MESSAGEPACK, status=128),
        Message(FLEXIMQ, b"", form=Form.TEXT, status=255),
        Message(FLEXIMQ, b"", form=Form.BINARY, status=256, topic="channel/255"),
        Message(FLEXIMQ, b"x", form=Form.BINARY, status=65535),
        Message(LAMAMQ, b"five", created=1_600_000_000, headers=headers),
        Message(LAMAMQ, b"six", form=Form.TEXT, created=0),
        Message(LAMAMQ, b"", form=Form.EMPTY, created=2**32 - 1, headers=headers[:1]),
        Message(LAMAMQ, b"", created=7),
        Message(HERALD, b"", headers=headers, created=7, status=7),
        Message(FLIGHT, b"seven", sender=rheos, headers=headers, status=7),
        Message(FLIGHT, b"", topic="channel/0", client=2000),
    ]


def test_every_kind_of_message_is_delivered_to_every_protocol() -> None:
    messages = one_of_each()
    assert_delivered(messages, *loaded(messages))


def test_values_of_every_size_around_the_boundaries_are_delivered() -> None:
    sizes = [*range(70), 127, 128, 129, 223, 224, 225, 255, 256, 257, 258, 1000, 65_535, 65_536]
    for protocol in REGISTRY:
        messages = [
            Message(protocol, b"x" * size, form=form, created=1)
            for size in sizes
            for form in FORMS.get(protocol, [Form.PLAIN])
            if form is not Form.EMPTY and form is not Form.MESSAGEPACK
        ]
        assert_delivered(messages, *loaded(messages))


@st.composite
def a_message(draw: st.DrawFn) -> Message:
    protocol = draw(st.sampled_from(list(REGISTRY)))
    form = draw(st.sampled_from(FORMS.get(protocol, [Form.PLAIN])))
    value = draw(st.binary(max_size=300))
    if form is Form.MESSAGEPACK:
        value = draw(
            st.sampled_from([b"", b"\xc0", b"\x93\x01\x02\x03", b"\x82\xa1a\x01\xa1b\xc2"])
        )
    elif form is Form.TEXT:
        value = draw(st.text(max_size=80)).encode()
    elif form is Form.EMPTY:
        value = b""
    names = st.just(str(uuid.UUID(bytes=draw(st.binary(min_size=16, max_size=16)))))
    return Message(
        protocol,
        value,
        f"channel/{draw(st.sampled_from([0, 1, 7, 255]))}",
        form=form,
        sender=draw(names | st.text(max_size=40)),
        client=draw(st.integers(1, 2**32 - 1)),
        timestamp_us=draw(st.integers(0, 2**32 * 1_000_000 - 1)),
        headers=tuple(
            draw(st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=40)), max_size=3))
        ),
        created=draw(st.integers(0, 2**32 - 1)) if protocol is LAMAMQ else None,
        status=draw(st.none() | st.integers(0, 65535)),
    )


@settings(max_examples=150, deadline=None)
@given(messages=st.lists(a_message(), max_size=12))
def test_generated_messages_are_delivered_as_the_plain_encoders_write_them(
    messages: list[Message],
) -> None:
    assert_delivered(messages, *loaded(messages))


def scanned(protocol: Protocol, order: ByteOrder, data: bytes) -> tuple[Batch, TopicTable]:
    batch, topics = Batch(), new_topics()
    batch.timestamp_us = TIMESTAMP_US
    sender = Sender(sender_uuid(NUMBER), NUMBER)
    scans: dict[Protocol, Any] = {
        RHEOS1: rheos1_kernel.scan,
        RHEOS2: rheos2_kernel.scan,
        FLEXIMQ: fleximq_kernel.scan,
        HERALD: herald_kernel.scan,
        LAMAMQ: lamamq_kernel.scan,
    }
    keywords: dict[str, Any] = {}
    if protocol is FLEXIMQ:
        keywords["headers"] = fleximq_kernel.HeaderCache(publication)
    if protocol in (HERALD, LAMAMQ):
        keywords["order"] = order
    assert scans[protocol](data, 0, batch, topics, sender, **keywords) == len(data)
    return batch, topics


def kept(protocol: Protocol, order: ByteOrder, data: bytes) -> Iterator[Message]:
    """What the log keeps of publish frames, found by the plain codec."""
    rows, end = plain_run(protocol, data, order)
    assert end == len(data)
    for row in rows:
        form = Form.PLAIN
        name = "somebody"
        if protocol in (RHEOS1, RHEOS2):
            name = str(uuid.UUID(bytes=row.sender))
        elif protocol is FLEXIMQ:
            decoder = fleximq.BrokerDecoder()
            decoder.feed(row.frame)
            (packet,) = decoder
            assert isinstance(packet, fleximq.Message)
            head = messagepack.head(packet.payload, 0)[0] if packet.payload else None
            kinds = {messagepack.Kind.STR: Form.TEXT, messagepack.Kind.BIN: Form.BINARY}
            form = kinds.get(head, Form.MESSAGEPACK) if head is not None else Form.MESSAGEPACK
        elif protocol is LAMAMQ:
            form = {
                lamamq.PayloadType.EMPTY: Form.EMPTY,
                lamamq.PayloadType.STRING: Form.TEXT,
                lamamq.PayloadType.BUFFER: Form.PLAIN,
            }[row.payload_type or lamamq.PayloadType.EMPTY]
        yield Message(
            protocol,
            row.value,
            row.topic,
            form=form,
            sender=name,
            headers=row.headers,
            created=row.created if protocol is LAMAMQ else None,
            status=row.status,
        )


@EACH_SOURCE
def test_replay_gives_the_bytes_that_live_delivery_gave(
    protocol: Protocol, order: ByteOrder
) -> None:
    headers = (("k", b"v"), ("kk", b"\xff"))
    text, empty = lamamq.PayloadType.STRING, lamamq.PayloadType.EMPTY
    data = b"".join(
        [
            publish(protocol, order, value=b"one"),
            publish(protocol, order, value=b"two", sender=UUIDS[2], channel=9, headers=headers),
            publish(protocol, order, value=b"", sender=UUIDS[0], headers=headers),
            publish(protocol, order, value=b"text", payload_type=text, payload=b"\xa4text"),
            publish(protocol, order, payload_type=empty, payload=b""),
            publish(protocol, order, value=b"y" * 300, status=200),
            publish(protocol, order, value=b"z", payload=b"\xd9\x20" + b"s" * 32, status=65535),
            publish(protocol, order, value=b"q" * 70_000 if protocol is not RHEOS1 else b""),
            publish(protocol, order, payload=b"\x92\x01\xc0", value=b"list", status=0),
        ]
    )
    live, live_topics = scanned(protocol, order, data)
    batch, topics = loaded(list(kept(protocol, order, data)))
    assert len(batch) == len(live) == 9
    for target, target_order in AUDIENCES:
        frames = kernel_encode(target, target_order, live, live_topics)
        assert kernel_encode(target, target_order, batch, topics) == frames, target


def test_rows_are_delivered_in_the_order_given() -> None:
    messages = one_of_each()
    batch, topics = loaded(messages)
    picked = [14, 0, 11, 5, 5, 3]
    rows = memoryview(array.array("I", picked))
    for target, order in AUDIENCES:
        assert kernel_encode(target, order, batch, topics, rows) == b"".join(
            plain_frame(target, order, messages[index], position)
            for position, index in enumerate(picked)
        )


# --- What a row tells ----------------------------------------------------------------------------


def test_a_row_tells_what_was_stored() -> None:
    messages = one_of_each()
    batch, topics = loaded(messages)
    assert (len(batch), batch.protocol, batch.order) == (len(messages), 256, "big")
    for row, message in enumerate(messages):
        assert topics.name(batch.topic_id(row)) == message.topic
        assert batch.value(row) == message.value
        assert batch.row_protocol(row) == message.protocol.number
        assert batch.row_timestamp_us(row) == message.timestamp_us
        assert batch.form(row) == message.form
        assert not batch.hidden(row)
        assert batch.sender(row).uuid == sender_of(message)
        assert batch.sender(row).number == message.client
        assert batch.frame(row) is None
        assert batch.message_id(row) is None
        lama, flexi = (message.protocol is p for p in (LAMAMQ, FLEXIMQ))
        assert batch.created(row) == (message.created if lama else None)
        assert batch.status(row) == (message.status if flexi else None)
        headers = len(message.headers).to_bytes(2, "big") + b"".join(
            len(part).to_bytes(4, "big") + part
            for key, value in message.headers
            for part in (key.encode(), value)
        )
        assert batch.headers(row) == (headers if lama else None)
    with pytest.raises(IndexError):
        batch.row_protocol(len(messages))


def test_a_scanned_row_answers_the_same_questions() -> None:
    frame = publish(LAMAMQ, "little", value=b"v")
    batch, _ = scanned(LAMAMQ, "little", frame)
    assert (batch.row_protocol(0), batch.row_timestamp_us(0)) == (LAMAMQ.number, TIMESTAMP_US)
    assert (batch.form(0), batch.hidden(0)) == (None, False)


@pytest.mark.parametrize(
    ("protocol", "name", "named"),
    [
        (RHEOS1, "00112233-4455-6677-8899-aabbccddeeff", True),
        (RHEOS2, "00112233-4455-6677-8899-AABBCCDDEEFF", True),
        (RHEOS2, "00112233-4455-6677-8899-aabbccddeeff0", False),
        (RHEOS2, "00112233-4455-6677-8899-aabbccddeefg", False),
        (RHEOS2, "00112233-4455-6677-8899aabbccddeeff--", False),
        (RHEOS2, "00112233+4455-6677-8899-aabbccddeeff", False),
        (RHEOS1, "", False),
        (HERALD, "00112233-4455-6677-8899-aabbccddeeff", False),
        (LAMAMQ, "00112233-4455-6677-8899-aabbccddeeff", False),
    ],
)
def test_only_a_rheos_client_goes_by_the_uuid_of_its_name(
    protocol: Protocol, name: str, *, named: bool
) -> None:
    batch, _ = loaded([Message(protocol, sender=name, client=77, created=1)])
    identity = bytes.fromhex("00112233445566778899aabbccddeeff") if named else sender_uuid(77)
    assert batch.sender(0).uuid == identity
    assert batch.sender(0).number == 77


def test_more_senders_than_a_scanned_batch_may_have() -> None:
    messages = [Message(RHEOS2, sender=str(uuid.UUID(int=n)), client=n + 1) for n in range(3000)]
    assert_delivered(messages, *loaded(messages))


def test_a_push_without_a_time_of_its_own_has_the_brokers() -> None:
    batch, _ = loaded([Message(LAMAMQ, created=5), Message(LAMAMQ)])
    assert [batch.created(0), batch.created(1)] == [5, TIMESTAMP_US // 1_000_000]


# --- Hidden rows ---------------------------------------------------------------------------------


def test_private_messages_and_all_but_publishes_are_hidden() -> None:
    messages = [
        Message(topic="channel/1"),
        Message(topic="channel/2", private=True),
        *(Message(topic="channel/3", kind=kind) for kind in Kind if kind is not Kind.PUBLISH),
        Message(topic="channel/1"),
    ]
    batch, topics = loaded(messages)
    assert [batch.hidden(row) for row in range(len(batch))] == [False, *[True] * 5, False]
    assert batch.routes(all_topics(topics), route_count=2) == (1,)
    assert list(batch.select(all_topics(topics), b"\0\1")) == [0, 6]
    assert list(batch.select_piece(all_topics(topics), b"\0\1")[0]) == [0, 6]


def test_hidden_rows_cannot_be_encoded() -> None:
    batch, topics = loaded([Message(), Message(private=True)])
    for target, order in AUDIENCES:
        with pytest.raises(ValueError, match="row 1 is not for subscribers"):
            kernel_encode(target, order, batch, topics)
        rows = memoryview(array.array("I", [1]))
        with pytest.raises(ValueError, match="row 1 is not for subscribers"):
            kernel_encode(target, order, batch, topics, rows)
        rows = memoryview(array.array("I", [0]))
        assert kernel_encode(target, order, batch, topics, rows)


def test_topics_of_hidden_rows_are_not_interned() -> None:
    topics = TopicTable()
    batch = Batch()
    row_group = RowGroup.of(
        [
            Message(topic="a"),
            Message(topic="b", private=True),
            Message(topic="", kind=Kind.BROADCAST),
            Message(topic="c/#", kind=Kind.REQUEST),
        ]
    )
    row_group.load(batch, topics)
    assert (len(topics), topics.find("a"), topics.find("b")) == (1, 0, None)
    assert list(batch.select(array.array("I", []), b"\1")) == [0]


# --- Topics --------------------------------------------------------------------------------------


def test_topics_keep_their_ids_and_new_ones_get_theirs() -> None:
    topics = TopicTable()
    known = topics.intern("known")
    batch = Batch()
    RowGroup.of([Message(topic="new/é"), Message(topic="known")]).load(batch, topics)
    assert [topics.name(batch.topic_id(row)) for row in range(2)] == ["new/é", "known"]
    assert batch.topic_id(1) == known
    assert len(topics) == 2


def test_a_full_topic_table_is_an_error_and_leaves_the_batch_empty() -> None:
    batch, topics = Batch(), TopicTable(capacity=2)
    row_group = RowGroup.of([Message(topic=name) for name in "abc"])
    with pytest.raises(TopicTableFull):
        row_group.load(batch, topics)
    assert (len(batch), batch.protocol) == (0, 0)


def test_messages_of_a_removed_topic_are_not_delivered() -> None:
    topics = TopicTable()
    topics.remove(topics.intern("gone"))
    kept = topics.intern("kept")
    batch = Batch()
    RowGroup.of([Message(topic="gone"), Message(topic="kept")]).load(batch, topics)
    assert topics.find("gone") is None
    assert list(batch.select(array.array("I", [1, 1]), b"\1\1")) == [1]
    assert batch.topic_id(1) == kept
    assert len(batch.routes(array.array("I", [0, 1]), route_count=2)) == 1


@pytest.mark.parametrize("topic", ["", "a/#", "+"])
def test_a_publish_under_a_name_that_nobody_may_publish_to_is_refused(topic: str) -> None:
    batch = Batch()
    with pytest.raises(ValueError, match=r"topic|name"):
        RowGroup.of([Message(topic=topic)]).load(batch, TopicTable())
    assert len(batch) == 0


def test_a_topic_that_is_not_utf8_is_refused() -> None:
    row_group = RowGroup.of([Message(topic="abc")])
    row_group.data[row_group.topics[2]] = 0xFF
    with pytest.raises(UnicodeDecodeError):
        row_group.load(Batch(), TopicTable())


def test_frames_need_the_topics_the_rows_were_loaded_with() -> None:
    batch, _ = loaded([Message(topic="new")])
    with pytest.raises(ValueError, match="not for subscribers"):
        rheos2_kernel.encode(batch, TopicTable())


# --- Pieces --------------------------------------------------------------------------------------


def pieces(batch: Batch, routes: "array.array[int]", **keywords: Any) -> list[list[int]]:
    found, row = [], 0
    end = keywords.get("last_row", len(batch))
    while row < end:
        rows, following = batch.select_piece(routes, b"\0\1", first_row=row, **keywords)
        assert following > row
        found.append(list(rows))
        row = following
    return found


def test_pieces_together_are_what_is_selected_at_once() -> None:
    messages = [
        Message(topic=f"channel/{row % 3}", value=bytes(row), private=row % 7 == 0)
        for row in range(200)
    ]
    batch, topics = loaded(messages)
    routes = all_topics(topics)
    routes[batch.topic_id(1)] = 0
    for bytes_max in (1, 100, 1000, 10_000, 2**63):
        for value_bytes_max in (100, 2**32 - 1):
            found = pieces(batch, routes, bytes_max=bytes_max, value_bytes_max=value_bytes_max)
            whole = batch.select(routes, b"\0\1", value_bytes_max=value_bytes_max)
            assert [row for piece in found for row in piece] == list(whole)
    assert len(pieces(batch, routes, bytes_max=1)) > 100
    assert len(pieces(batch, routes)) == 1


def test_a_piece_keeps_to_its_rows() -> None:
    batch, topics = loaded([Message()] * 10)
    routes = all_topics(topics)
    rows, following = batch.select_piece(routes, b"\0\1", first_row=3, last_row=6)
    assert (list(rows), following) == ([3, 4, 5], 6)
    for first, last in ((10, None), (6, 6), (6, 3), (99, 99)):
        rows, following = batch.select_piece(routes, b"\0\1", first_row=first, last_row=last)
        assert list(rows) == []
    assert batch.select_piece(routes, b"\0\1", last_row=99)[1] == 10
    assert batch.select_piece(routes, b"\0\1", bytes_max=0)[1] == 0


@pytest.mark.parametrize(("target", "order"), AUDIENCES)
def test_a_pieces_frames_pass_its_budget_by_no_more_than_one(
    target: Protocol, order: ByteOrder
) -> None:
    long_header = (("k" * 900, b"v" * 900),) * 5
    messages = [
        Message(LAMAMQ, b"v", topic="t" * 60_000, created=1),
        Message(LAMAMQ, b"v", headers=long_header, created=1),
        Message(FLEXIMQ, b"v" * 70_000, form=Form.TEXT, status=500),
        Message(RHEOS2, b"v" * 300),
    ] * 30
    batch, topics = Batch(), TopicTable()
    topics.bind_channel(7, "channel/7")
    topics.bind_channel(8, "t" * 60_000)
    RowGroup.of(messages).load(batch, topics)
    budget = 200_000
    row = 0
    while row < len(batch):
        rows, row = batch.select_piece(all_topics(topics), b"\0\1", first_row=row, bytes_max=budget)
        before = kernel_encode(target, order, batch, topics, rows[:-1])
        assert len(before) <= budget


def test_own_messages_are_left_out_from_a_row_on() -> None:
    batch, topics = loaded([Message(client=1000 + row % 2) for row in range(8)])
    routes = all_topics(topics)
    assert list(batch.select_piece(routes, b"\0\1", without_sender=1001)[0]) == [0, 2, 4, 6]
    rows, _ = batch.select_piece(routes, b"\0\1", without_sender=1001, own_from_row=4)
    assert list(rows) == [0, 1, 2, 3, 4, 6]
    assert len(batch.select_piece(routes, b"\0\1", without_sender=1)[0]) == 8


@EACH_SOURCE
def test_a_scanned_batch_is_cut_in_pieces_too(protocol: Protocol, order: ByteOrder) -> None:
    batch, topics = scanned(protocol, order, publish(protocol, order, value=bytes(36)) * 5)
    routes = all_topics(topics)
    assert pieces(batch, routes, bytes_max=150) == [[0, 1], [2, 3], [4]]
    assert list(batch.select_piece(routes, b"\0\1", without_sender=NUMBER)[0]) == []
    assert len(batch.select_piece(routes, b"\0\1", without_sender=NUMBER + 1)[0]) == 5


# --- The batch and its buffer --------------------------------------------------------------------


def test_an_empty_group_is_an_empty_batch() -> None:
    batch, topics = loaded([])
    assert len(batch) == 0
    for target, order in AUDIENCES:
        assert kernel_encode(target, order, batch, topics) == b""
    row_group = RowGroup([], [0] * 2 * stored.BUFFERS, [0] * 4, [0] * 4, 0)  # type: ignore[arg-type]
    row_group.load(batch, topics, b"")
    assert len(batch) == 0


def test_the_buffer_is_held_until_the_batch_lets_go() -> None:
    row_group = RowGroup.of([Message()])
    batch, topics = Batch(), new_topics()
    row_group.load(batch, topics, row_group.data)
    with pytest.raises(BufferError):
        row_group.data.extend(b"x")
    batch.clear()
    row_group.data.extend(b"x")
    row_group.topics[0] = -1
    with pytest.raises(ValueError, match="bytes at -1"):
        row_group.load(batch, topics, row_group.data)
    row_group.data.extend(b"x")


def test_a_batch_may_be_scanned_and_loaded_in_turns() -> None:
    batch, topics = Batch(), new_topics()
    frame = publish(HERALD, "little", value=b"live")
    sender = Sender(sender_uuid(NUMBER), NUMBER)
    for count in (1, 500, 3):
        row_group = RowGroup.of([Message(RHEOS2, sender=str(uuid.uuid4()))] * count)
        row_group.load(batch, topics)
        assert (len(batch), batch.value(count - 1)) == (count, b"value")
        herald_kernel.scan(frame * 2, 0, batch, topics, sender, order="little")
        assert (len(batch), batch.value(1)) == (2, b"live")
        assert batch.sender(1).uuid == sender.uuid


def test_the_largest_group_is_loaded_and_a_larger_one_refused() -> None:
    row_group = RowGroup.of([Message(value=b"")] * BATCH_ROWS_MAX)
    batch, topics = Batch(), new_topics()
    row_group.load(batch, topics)
    assert len(batch) == BATCH_ROWS_MAX
    row_group.count += 1
    with pytest.raises(ValueError, match="65537 rows"):
        row_group.load(batch, topics)
    row_group.count = -1
    with pytest.raises(ValueError, match="-1 rows"):
        row_group.load(batch, topics)


# --- What is not a row group -------------------------------------------------------------------------

USED = [4, 5, 7, 13, 17, 20, 21, 23, 24, 26, 28, 30, 31, 32, 36, 37, 42, 44]
"""Buffers that are read, by their place in the layout."""


def test_arrow_has_as_many_buffers_as_the_kernel_expects() -> None:
    row_group = RowGroup.of(one_of_each())
    assert len(row_group.layout) == 2 * stored.BUFFERS
    row_group.layout += [0, 0]
    with pytest.raises(ValueError, match="92 numbers"):
        row_group.load(Batch(), new_topics())


@pytest.mark.parametrize("buffer", USED)
def test_a_buffer_that_is_too_short_is_refused(buffer: int) -> None:
    messages = one_of_each()
    row_group = RowGroup.of(messages)
    needed = {
        4: 4 * (len(messages) + 1),
        5: sum(len(message.value) for message in messages),
        17: 4 * (len(messages) + 1),
        21: sum(len(key.encode()) for message in messages for key, _ in message.headers),
        24: sum(len(value) for message in messages for _, value in message.headers),
        31: (len(messages) + 7) // 8,
        36: (len(messages) + 7) // 8,
    }
    entries = sum(len(message.headers) for message in messages)
    needed |= {20: 4 * (entries + 1), 23: 4 * (entries + 1)}
    widths = {7: 2, 13: 8, 26: 1, 28: 1, 30: 2, 32: 8, 37: 4, 42: 4, 44: 1}
    needed |= {place: width * len(messages) for place, width in widths.items()}
    row_group.layout[2 * buffer + 1] = needed[buffer]
    row_group.load(Batch(), new_topics())
    row_group.layout[2 * buffer + 1] = needed[buffer] - 1
    with pytest.raises(ValueError, match=r"shorter|inside"):
        row_group.load(Batch(), new_topics())


@pytest.mark.parametrize("number", [-1, 2**31, 2**62, -(2**63)])
def test_a_position_outside_the_data_is_refused(number: int) -> None:
    for place in range(2 * stored.BUFFERS):
        row_group = RowGroup.of(one_of_each())
        row_group.layout[place] = number
        with pytest.raises(ValueError, match="bytes at"):
            row_group.load(Batch(), new_topics())
    for place in range(4):
        for name in ("topics", "senders"):
            row_group = RowGroup.of(one_of_each())
            getattr(row_group, name)[place] = number
            with pytest.raises(ValueError, match="bytes at"):
                row_group.load(Batch(), new_topics())


def set_number(row_group: RowGroup, buffer: int, index: int, value: int, width: int) -> None:
    start = row_group.layout[2 * buffer] + width * index
    row_group.data[start : start + width] = value.to_bytes(width, "little", signed=value < 0)


@pytest.mark.parametrize(
    ("buffer", "index", "value", "width", "fault"),
    [
        (4, 0, -1, 4, "value"),
        (4, 1, 10_000, 4, "value"),
        (4, 16, 10_000, 4, "value"),
        (4, 16, 0, 4, "value"),
        (7, 3, 3, 2, "topic is not in the dictionary"),
        (17, 0, -1, 4, "headers"),
        (17, 16, 10_000, 4, "header"),
        (17, 16, 0, 4, "headers"),
        (20, 1, -1, 4, "header"),
        (23, 3, 2**31 - 1, 4, "header"),
        (26, 2, len(PROTOCOLS), 1, "protocol"),
        (28, 2, 5, 1, "kind"),
        (30, 0, 4, 2, "sender is not in the dictionary"),
        (37, 5, -1, 4, "status"),
        (37, 5, 65_536, 4, "status"),
        (44, 0, 5, 1, "form"),
        (44, 0, 0x7F, 1, "form"),
    ],
)
def test_a_number_that_leads_nowhere_is_refused(
    buffer: int, index: int, value: int, width: int, fault: str
) -> None:
    row_group = RowGroup.of(one_of_each())
    set_number(row_group, buffer, index, value, width)
    batch = Batch()
    with pytest.raises(ValueError, match=fault):
        row_group.load(batch, new_topics())
    assert (len(batch), batch.protocol) == (0, 0)


def test_a_dictionary_that_leads_nowhere_is_refused() -> None:
    for name, fault in (("topics", "topic's name"), ("senders", "sender's name")):
        for value in (-1, 2**31 - 1):
            row_group = RowGroup.of(one_of_each())
            start = getattr(row_group, name)[0]
            row_group.data[start : start + 4] = value.to_bytes(4, "little", signed=True)
            with pytest.raises(ValueError, match=fault):
                row_group.load(Batch(), new_topics())


def test_more_headers_than_a_push_can_count_are_refused() -> None:
    for count, fits in ((65_535, True), (65_536, False)):
        row_group = RowGroup.of([Message(LAMAMQ, headers=(("", b""),) * count, created=1)])
        batch, topics = Batch(), new_topics()
        if fits:
            row_group.load(batch, topics)
            frame = lamamq_kernel.encode(batch, topics, order="big", first_message_id=1)
            assert len(frame) == 5 + 4 + 4 + 9 + 2 + 8 * count + 1 + 4 + 5
        else:
            with pytest.raises(ValueError, match="too many"):
                row_group.load(batch, topics)


# --- Damage --------------------------------------------------------------------------------------


class Fenced:
    """Memory behind which there is none: reading one byte too many ends the process."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        end = -(-size // page) * page
        self._map = mmap.mmap(-1, end + page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        fence = ctypes.c_void_p(address + end)
        assert ctypes.CDLL(None).mprotect(fence, ctypes.c_size_t(page), 0) == 0
        self.view = memoryview(self._map)[end - size : end]


def use_everything(batch: Batch, topics: TopicTable) -> None:
    """Read all that a batch has, in every way there is."""
    for row in range(len(batch)):
        batch.value(row)
        batch.sender(row)
        batch.headers(row)
        batch.created(row)
        batch.status(row)
        batch.row_timestamp_us(row)
    routes = array.array("I", [0]) * len(topics)
    for channel in (0, 7, 255):
        identifier = topics.find(f"channel/{channel}")
        assert identifier is not None
        routes[identifier] = 1
    rows, _ = batch.select_piece(routes, b"\0\1", without_sender=3)
    for target, order in AUDIENCES:
        kernel_encode(target, order, batch, topics, rows)
    rows = batch.select(all_topics(topics), b"\1\1")
    rheos2_kernel.encode(batch, topics, rows=rows)


def test_damaged_groups_are_refused_or_read_within_their_bounds() -> None:
    randomness = random.Random(4)
    row_group = RowGroup.of(one_of_each())
    fenced = Fenced(len(row_group.data))
    batch = Batch()
    refused = read = 0
    for _ in range(4000):
        damaged = bytearray(row_group.data)
        for _ in range(randomness.randrange(1, 4)):
            place = randomness.choice([*USED, 100, 101])
            if place == 100:
                start, length = randomness.choice([row_group.topics[:2], row_group.topics[2:]])
            elif place == 101:
                start, length = randomness.choice([row_group.senders[:2], row_group.senders[2:]])
            else:
                start, length = row_group.layout[2 * place : 2 * place + 2]
            at = randomness.randrange(start, start + length)
            damaged[at] = randomness.choice(
                [damaged[at] ^ 1 << randomness.randrange(8), 0, 1, 0x7F, 0x80, 0xFF]
            )
        batch.clear()
        fenced.view[:] = damaged
        topics = new_topics()
        try:
            row_group.load(batch, topics, fenced.view)
        except ValueError:
            refused += 1
            assert len(batch) == 0
            continue
        use_everything(batch, topics)
        read += 1
    batch.clear()
    assert refused > 500
    assert read > 500


def test_damaged_layouts_are_refused_or_read_within_their_bounds() -> None:
    randomness = random.Random(5)
    whole = RowGroup.of(one_of_each())
    fenced = Fenced(len(whole.data))
    fenced.view[:] = whole.data
    size = len(whole.data)
    batch = Batch()
    refused = read = 0
    for _ in range(3000):
        row_group = dataclasses.replace(
            whole,
            layout=list(whole.layout),
            topics=list(whole.topics),
            senders=list(whole.senders),
            count=randomness.choice([whole.count] * 4 + [0, 1, 17, 500]),
        )
        for _ in range(randomness.randrange(1, 3)):
            numbers = randomness.choice(
                [row_group.layout] * 4 + [row_group.topics, row_group.senders]
            )
            place = randomness.randrange(len(numbers))
            numbers[place] = randomness.choice(
                [0, 1, 7, size - 1, size, randomness.randrange(size), numbers[place] ^ 8]
            )
        topics = new_topics()
        try:
            row_group.load(batch, topics, fenced.view)
        except ValueError:
            refused += 1
            continue
        use_everything(batch, topics)
        read += 1
    batch.clear()
    assert refused > 500
    assert read > 500


def test_a_group_at_the_very_end_of_memory_is_read_whole() -> None:
    for sizes in ([0], [1], [31, 32, 33], [100] * 5, [250, 260]):
        for protocol in REGISTRY:
            messages = [Message(protocol, b"x" * size, created=1) for size in sizes]
            row_group = RowGroup.of(messages)
            start, length = row_group.layout[10:12]
            tail = bytes(row_group.data[start : start + length])
            row_group.layout[10] = len(row_group.data)  # the values come last
            row_group.data += tail
            fenced = Fenced(len(row_group.data))
            fenced.view[:] = row_group.data
            batch, topics = Batch(), new_topics()
            row_group.load(batch, topics, fenced.view)
            assert_delivered(messages, batch, topics)
            batch.clear()
