"""A batch borrows its buffer, has one owner while it is filled, and keeps to its limits."""

import array
import os
import resource
import struct
from typing import Any

import pytest

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1, rheos2
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.errors import ValueNotDeliverable
from penstock.limits import TOPICS_MAX
from penstock.protocols import PROTOCOLS, Protocol
from penstock.wire import fleximq, herald
from tests.support import fleximq_bytes as fx
from tests.support.agreement import SENDER, SOURCES, kernel_encode, kernel_scan, new_topics
from tests.support.publishes import publish

HERALD = publish(PROTOCOLS["herald"], "little", value=b"hello")


def test_a_batch_tells_where_it_came_from() -> None:
    for protocol, order in SOURCES:
        batch, _, _ = kernel_scan(protocol, publish(protocol, order, value=b"v"), order)
        assert PROTOCOLS.numbered(batch.protocol) is protocol
        assert batch.order == order
        assert len(batch) == 1
        batch.clear()
        assert (len(batch), batch.protocol) == (0, 0)


def test_columns_that_a_protocol_lacks_are_none() -> None:
    batch, _, _ = kernel_scan(PROTOCOLS["herald"], HERALD, "little")
    assert batch.frame(0) is None
    assert batch.headers(0) is None
    assert batch.message_id(0) is None
    assert batch.created(0) is None
    assert batch.status(0) is None
    assert batch.sender(0).uuid == SENDER.uuid
    assert batch.sender(0).number == SENDER.number


def test_the_buffer_is_held_until_the_batch_lets_go() -> None:
    data = bytearray(HERALD)
    batch, _, _ = kernel_scan(PROTOCOLS["herald"], data, "little")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        data.extend(b"x")
    batch.clear()
    data.extend(b"x")


def test_a_second_scan_replaces_the_first() -> None:
    batch, topics, _ = kernel_scan(PROTOCOLS["herald"], HERALD * 3, "little")
    kernel_scan(PROTOCOLS["herald"], HERALD, "little", batch=batch, topics=topics)
    assert len(batch) == 1


@pytest.mark.parametrize("start", [-1, len(HERALD) + 1])
def test_a_start_outside_the_buffer_is_refused(start: int) -> None:
    batch = Batch()
    with pytest.raises(ValueError, match="cannot scan"):
        kernel_scan(PROTOCOLS["herald"], HERALD, "little", start=start, batch=batch)
    assert len(batch) == 0
    _, _, end = kernel_scan(PROTOCOLS["herald"], HERALD, "little", start=len(HERALD), batch=batch)
    assert end == len(HERALD)


def test_a_full_batch_ends_the_run() -> None:
    for protocol, order in SOURCES:
        frame = publish(protocol, order, value=b"v")
        batch, _, end = kernel_scan(protocol, frame * 10, order, batch=Batch(rows_max=4))
        assert (len(batch), end) == (4, 4 * len(frame))
    batch, _, end = kernel_scan(PROTOCOLS["herald"], HERALD * 20, "little")
    batch.rows_max = 3  # also where the columns have room for more
    _, _, end = kernel_scan(PROTOCOLS["herald"], HERALD * 20, "little", batch=batch)
    assert (len(batch), end) == (3, 3 * len(HERALD))
    batch, _, end = kernel_scan(PROTOCOLS["herald"], HERALD, "little", batch=Batch(rows_max=0))
    assert (len(batch), end) == (0, 0)


def test_more_rows_than_a_column_starts_with() -> None:
    batch, topics, end = kernel_scan(PROTOCOLS["herald"], HERALD * 5000, "little")
    assert (len(batch), end) == (5000, 5000 * len(HERALD))
    assert batch.value(4999) == b"hello"
    assert len(herald_kernel.encode(batch, topics, order="big")) == 5000 * (16 + 5)


def test_rows_beyond_the_batch_do_not_exist() -> None:
    batch, topics, _ = kernel_scan(PROTOCOLS["herald"], HERALD, "little")
    readers: list[Any] = [batch.topic_id, batch.value, batch.sender, batch.frame, batch.headers]
    for reader in [*readers, batch.message_id, batch.created, batch.status]:
        with pytest.raises(IndexError):
            reader(1)
    with pytest.raises(IndexError):
        rheos1.encode(batch, topics, rows=memoryview(array.array("I", [0, 1])))


def test_times_and_senders_are_columns_of_the_chosen_rows() -> None:
    batch, _, _ = kernel_scan(PROTOCOLS["herald"], HERALD * 3, "little")
    batch.timestamp_us = 0x0102030405
    number = batch.sender(0).number
    rows = memoryview(array.array("I", [0, 2]))
    expected = struct.pack("<2q2I", *(2 * [0x0102030405]), number, number)
    assert batch.times_and_senders(rows) == expected
    assert batch.times_and_senders(rows[:0]) == b""
    with pytest.raises(IndexError):
        batch.times_and_senders(memoryview(array.array("I", [0, 3])))


def test_rows_must_be_32_bit_numbers() -> None:
    batch, topics, _ = kernel_scan(PROTOCOLS["herald"], HERALD, "little")
    with pytest.raises(ValueError, match="32-bit"):
        rheos1.encode(batch, topics, rows=memoryview(b"\0\0\0\0"))
    assert rheos1.encode(batch, topics, rows=memoryview(array.array("I"))) == b""


def test_a_sender_has_a_uuid_of_16_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Sender(b"short", 1)
    with pytest.raises(OverflowError):
        Sender(bytes(16), 2**32)


def test_rows_are_picked_by_route_and_size() -> None:
    frames = [
        publish(PROTOCOLS["herald"], "little", channel=channel, value=bytes(size))
        for channel, size in [(1, 5), (2, 50), (1, 50), (3, 0), (1, 6)]
    ]
    batch, topics, _ = kernel_scan(PROTOCOLS["herald"], b"".join(frames), "little")
    routes = array.array("I", [0]) * len(topics)
    one, two, three = (topics.intern(f"channel/{n}") for n in (1, 2, 3))
    routes[one], routes[two], routes[three] = 4, 2, 4
    assert batch.routes(routes, route_count=5) == (2, 4)
    assert list(batch.select(routes, b"\0\0\0\0\1")) == [0, 2, 3, 4]
    assert list(batch.select(routes, b"\0\0\0\0\1", value_bytes_max=6)) == [0, 3, 4]
    assert list(batch.select(routes, b"\0\0\1")) == [1]
    assert list(batch.select(routes, b"")) == []
    assert list(batch.select(routes, None)) == [0, 1, 2, 3, 4]
    assert list(batch.select(routes, None, value_bytes_max=6)) == [0, 3, 4]
    assert list(batch.select(routes[:two], b"\1\0\0\0\0")) == [1, 3]  # unknown topics: route 0
    assert batch.routes(routes[:two], route_count=5) == (0, 4)
    with pytest.raises(IndexError):
        batch.routes(routes, route_count=4)


def test_rows_are_picked_by_the_kind_of_their_route() -> None:
    batch = Batch()
    rows = [(topic, 0, 1) for topic in (0, 1, 2, 1, 3)]
    batch.fill(b"v", rows, protocol=PROTOCOLS["rheos1"].number, order="little", sender=SENDER)
    routes = array.array("I", [1, 2, 2, 5])
    kinds = array.array("I", [9, 7, 300])
    assert batch.kinds(routes, kinds, kind_count=301) == (0, 7, 300)  # route 5 is not known
    with pytest.raises(IndexError):
        batch.kinds(routes, kinds, kind_count=300)
    assert batch.kinds(array.array("I"), kinds, kind_count=10) == (9,)  # topics not known: route 0
    assert batch.kinds(routes, array.array("I"), kind_count=1) == (0,)
    with pytest.raises(TypeError, match="32 bits"):
        batch.kinds(routes, array.array("H", kinds), kind_count=301)
    wanted = bytearray(301)
    assert list(batch.select(routes, wanted, kind_of_route=kinds)) == []
    wanted[300] = 1
    assert list(batch.select(routes, wanted, kind_of_route=kinds)) == [1, 2, 3]
    wanted[0] = 1
    assert list(batch.select(routes, wanted, kind_of_route=kinds)) == [1, 2, 3, 4]
    found, _ = batch.select_piece(routes, wanted, kind_of_route=kinds, first_row=2)
    assert list(found) == [2, 3, 4]
    batch.fill(b"v", rows[3:4], protocol=PROTOCOLS["rheos1"].number, order="little", sender=SENDER)
    assert batch.kinds(routes, kinds, kind_count=301) == (300,)
    with pytest.raises(IndexError):
        batch.kinds(routes, kinds, kind_count=300)


def test_a_batch_of_one_row_has_the_route_of_its_topic() -> None:
    frame = publish(PROTOCOLS["herald"], "little", channel=2, value=b"value")
    batch, topics, _ = kernel_scan(PROTOCOLS["herald"], frame, "little")
    routes = array.array("I", [0]) * len(topics)
    routes[topics.intern("channel/2")] = 3
    assert batch.routes(routes, route_count=4) == (3,)
    assert batch.routes(array.array("I"), route_count=4) == (0,)
    with pytest.raises(IndexError):
        batch.routes(routes, route_count=3)


def test_a_topic_that_is_not_permitted_ends_the_run() -> None:
    for protocol, order in SOURCES:
        topics = new_topics()
        good = publish(protocol, order, channel=1, value=b"v")
        bad = publish(protocol, order, channel=2, value=b"v")
        permits = bytearray(len(topics))
        permits[topics.intern("channel/1")] = 1
        scans: dict[Protocol, Any] = {
            PROTOCOLS["rheos1"]: rheos1.scan,
            PROTOCOLS["rheos2"]: rheos2.scan,
            PROTOCOLS["fleximq"]: fleximq_kernel.scan,
            PROTOCOLS["herald"]: herald_kernel.scan,
            PROTOCOLS["lamamq"]: lamamq_kernel.scan,
        }
        keywords: dict[str, Any] = {}
        if protocol is PROTOCOLS["fleximq"]:
            keywords["headers"] = fleximq_kernel.HeaderCache(fleximq.publication)
        if protocol in (PROTOCOLS["herald"], PROTOCOLS["lamamq"]):
            keywords["order"] = order
        for table in (permits, permits[: topics.intern("channel/2")]):
            end = scans[protocol](
                good + good + bad + good, 0, Batch(), topics, SENDER, permits=table, **keywords
            )
            assert end == 2 * len(good)


def test_herald_refuses_rows_it_cannot_carry() -> None:
    topics = new_topics()
    longest = 1_048_576 - 9
    for size, fits in ((longest, True), (longest + 1, False)):
        frame = publish(PROTOCOLS["rheos2"], "little", value=bytes(size))
        batch, _, _ = kernel_scan(PROTOCOLS["rheos2"], frame, "little", topics=topics)
        if fits:
            assert len(herald_kernel.encode(batch, topics, order="little")) == 7 + 1_048_576
        else:
            with pytest.raises(ValueNotDeliverable):
                herald_kernel.encode(batch, topics, order="little")
    frame = publish(PROTOCOLS["rheos2"], "little", topic="no/channel")
    batch, _, _ = kernel_scan(PROTOCOLS["rheos2"], frame * 2, "little", topics=topics)
    with pytest.raises(ValueNotDeliverable, match="row 0"):
        herald_kernel.encode(batch, topics, order="little")
    assert len(rheos1.encode(batch, topics)) == 2 * 21  # and is not left in use


def test_a_herald_publish_of_the_largest_message_is_scanned() -> None:
    frame = herald.encode(herald.Publish(1, bytes(1_048_575)))
    batch, _, end = kernel_scan(PROTOCOLS["herald"], frame, "little")
    assert (len(batch), end) == (1, len(frame))


def test_topics_are_learned_only_where_allowed() -> None:
    for scan, protocol in ((rheos1.scan, PROTOCOLS["rheos1"]), (rheos2.scan, PROTOCOLS["rheos2"])):
        topics = TopicTable()
        frame = publish(protocol, "little", topic="new", value=b"v")
        assert scan(frame, 0, Batch(), topics, SENDER, learn_topics=False) == 0
        assert topics.find("new") is None
        assert scan(frame, 0, Batch(), topics, SENDER) == len(frame)
        assert scan(frame, 0, Batch(), topics, SENDER, learn_topics=False) == len(frame)
    topics = TopicTable()
    frame = publish(PROTOCOLS["lamamq"], "big", topic="new", value=b"v")
    assert (
        lamamq_kernel.scan(frame, 0, Batch(), topics, SENDER, order="big", learn_topics=False) == 0
    )
    frame = publish(PROTOCOLS["fleximq"], "big", topic="new", value=b"v")
    headers = fleximq_kernel.HeaderCache(fleximq.publication)
    assert (
        fleximq_kernel.scan(frame, 0, Batch(), topics, SENDER, headers=headers, learn_topics=False)
        == 0
    )
    assert len(topics) == 0


def test_a_full_topic_table_ends_the_run() -> None:
    topics = TopicTable(capacity=2)
    frames = [publish(PROTOCOLS["rheos1"], "little", topic=name) for name in ("a", "b", "a", "c")]
    batch = Batch()
    end = rheos1.scan(b"".join(frames), 0, batch, topics, SENDER)
    assert (len(batch), end) == (3, 3 * len(frames[0]))
    assert TOPICS_MAX > 2


def test_limits_of_a_scan_end_the_run() -> None:
    topics = new_topics()
    for protocol, order, keywords in [
        (PROTOCOLS["rheos1"], "little", {"body_bytes_max": 4 + 9 + 10}),
        (PROTOCOLS["rheos2"], "little", {"body_bytes_max": 6 + 9 + 10}),
        (PROTOCOLS["lamamq"], "big", {"payload_bytes_max": 10, "order": "big"}),
    ]:
        kernels = {
            PROTOCOLS["rheos1"]: rheos1.scan,
            PROTOCOLS["rheos2"]: rheos2.scan,
            PROTOCOLS["lamamq"]: lamamq_kernel.scan,
        }
        scan: Any = kernels[protocol]
        fits = publish(protocol, order, value=bytes(10))  # type: ignore[arg-type]
        beyond = publish(protocol, order, value=bytes(11))  # type: ignore[arg-type]
        assert scan(fits + beyond, 0, Batch(), topics, SENDER, **keywords) == len(fits)
    frame = publish(PROTOCOLS["fleximq"], "big", value=bytes(10))
    header_bytes = int.from_bytes(frame[22:26], "big")
    for keywords in (
        {"message_bytes_max": len(frame) - 1},
        {"header_bytes_max": header_bytes - 1},
    ):
        headers = fleximq_kernel.HeaderCache(fleximq.publication)
        scan = fleximq_kernel.scan
        assert scan(frame, 0, Batch(), topics, SENDER, headers=headers, **keywords) == 0
        wider = {name: value + 1 for name, value in keywords.items()}
        assert scan(frame, 0, Batch(), topics, SENDER, headers=headers, **wider) == len(frame)


def test_lamamq_header_limits_end_the_run() -> None:
    topics = new_topics()
    pairs = (("k", b"v"), ("k", b"w"))
    frame = publish(PROTOCOLS["lamamq"], "big", headers=pairs)
    scan: Any = lamamq_kernel.scan
    for keywords, fits in [
        ({"headers_max": 2}, True),
        ({"headers_max": 1}, False),
        ({"headers_bytes_max": 20}, True),
        ({"headers_bytes_max": 19}, False),
    ]:
        end = scan(frame, 0, Batch(), topics, SENDER, order="big", **keywords)
        assert end == (len(frame) if fits else 0)


def test_a_lamamq_id_that_may_be_an_answer_ends_the_run_only_while_answers_are_awaited() -> None:
    topics = new_topics()
    own = publish(PROTOCOLS["lamamq"], "big", message_id=0x7FFFFFFF)
    brokers = publish(PROTOCOLS["lamamq"], "big", message_id=0x80000000)
    scan: Any = lamamq_kernel.scan
    stream = own + brokers
    assert scan(stream, 0, Batch(), topics, SENDER, order="big") == len(stream)
    assert scan(stream, 0, Batch(), topics, SENDER, order="big", answers_awaited=True) == len(own)


def test_lamamq_ids_wrap_within_the_brokers_half() -> None:
    batch, topics, _ = kernel_scan(
        PROTOCOLS["lamamq"], publish(PROTOCOLS["lamamq"], "big") * 3, "big"
    )
    frames = lamamq_kernel.encode(batch, topics, order="big", first_message_id=0xFFFFFFFE)
    size = len(frames) // 3
    ids = [frames[n * size : n * size + 4].hex() for n in range(3)]
    assert ids == ["fffffffe", "ffffffff", "80000000"]


def test_a_header_cache_starts_over_when_it_is_full() -> None:
    topics = new_topics()
    calls: list[bytes] = []

    def publication(header: bytes) -> tuple[str, int | None] | None:
        calls.append(header)
        return fleximq.publication(header)

    headers = fleximq_kernel.HeaderCache(publication, capacity=3)
    frames = [publish(PROTOCOLS["fleximq"], "big", topic=f"t{n}", value=b"v") for n in range(7)]
    batch = Batch()
    stream = b"".join(frames)
    assert fleximq_kernel.scan(stream, 0, batch, topics, SENDER, headers=headers) == len(stream)
    assert len(calls) == 7
    assert len(headers) == 1
    assert [topics.name(batch.topic_id(row)) for row in range(7)] == [f"t{n}" for n in range(7)]
    fleximq_kernel.scan(frames[6] * 5, 0, batch, topics, SENDER, headers=headers)
    assert len(calls) == 7
    with pytest.raises(ValueError, match="at least one"):
        fleximq_kernel.HeaderCache(publication, capacity=0)


def header_frame(header: bytes) -> bytes:
    return fx.frame(fx.PUB, SENDER.number, header, fx.pack(b"v"))


def test_a_header_cache_is_bounded_in_bytes() -> None:
    topics = new_topics()
    headers = fleximq_kernel.HeaderCache(
        lambda _: ("t", None), size_max=10_000, header_bytes_max=1_000
    )
    batch = Batch()
    most = 0
    for number in range(200):
        frame = header_frame(b"%04d" % number * 200)
        assert fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers) == len(frame)
        assert headers.size >= 800 * len(headers)
        most = max(most, headers.size)
    assert 5_000 < most <= 10_000


@pytest.mark.skipif(
    bool(os.environ.get("PENSTOCK_SANITIZED")), reason="ASan keeps freed memory for a while"
)
def test_a_default_header_cache_cannot_be_filled_with_long_headers() -> None:
    """Once broken: 65,536 headers of 64 KiB were 4 GiB."""
    topics = new_topics()
    headers = fleximq_kernel.HeaderCache(lambda _: ("t", None))
    batch = Batch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(4_000):
        for size in (4_000, 60_000):
            frame = header_frame(b"%05d" % number + bytes(size))
            end = fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers)
            assert end == len(frame)
            assert headers.size <= headers.size_max == 16 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << 10, f"{grown} KiB"


def test_long_headers_are_scanned_though_only_the_last_is_kept() -> None:
    topics = new_topics()
    calls: list[bytes] = []

    def publication(header: bytes) -> tuple[str, int | None] | None:
        calls.append(header)
        return header[:1].decode(), 7 if header[:1] == b"b" else None

    headers = fleximq_kernel.HeaderCache(publication, header_bytes_max=100)
    runs = b"aaabab"
    stream = b"".join(header_frame(bytes([name]) * 101) for name in runs)
    batch = Batch()
    assert fleximq_kernel.scan(stream, 0, batch, topics, SENDER, headers=headers) == len(stream)
    assert [topics.name(batch.topic_id(row)) for row in range(6)] == list("aaabab")
    assert [batch.status(row) for row in range(6)] == [None, None, None, 7, None, 7]
    assert len(calls) == 4
    assert (len(headers), headers.size) == (0, 0)


@pytest.mark.parametrize("size", [10, 200], ids=["cached", "long"])
def test_a_header_cache_does_not_give_the_number_of_a_removed_topic(size: int) -> None:
    topics = new_topics()
    headers = fleximq_kernel.HeaderCache(lambda _: ("t", None), header_bytes_max=100)
    frame = header_frame(bytes(size))
    batch = Batch()
    fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers)
    first = batch.topic_id(0)
    topics.remove(first)
    assert (
        fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers, learn_topics=False)
        == 0
    )
    fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers)
    assert batch.topic_id(0) == topics.find("t") != first


def test_a_fault_in_a_header_parser_reaches_the_caller_and_frees_the_batch() -> None:
    topics = new_topics()

    def publication(header: bytes) -> tuple[str, int | None] | None:
        raise KeyError(header)

    headers = fleximq_kernel.HeaderCache(publication)
    frame = publish(PROTOCOLS["fleximq"], "big", value=b"v")
    batch = Batch()
    for _ in range(2):
        with pytest.raises(KeyError):
            fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers)
    batch.clear()


def test_a_scan_inside_a_scan_of_the_same_batch_is_refused() -> None:
    topics = new_topics()
    frame = publish(PROTOCOLS["fleximq"], "big", value=b"v")
    batch = Batch()
    refused: list[str] = []

    def publication(header: bytes) -> tuple[str, int | None] | None:
        for attempt in (
            lambda: kernel_scan(PROTOCOLS["herald"], HERALD, "little", batch=batch),
            lambda: rheos1.encode(batch, topics),
            lambda: batch.select(array.array("I"), b""),
            lambda: fleximq_kernel.scan(frame, 0, Batch(), topics, SENDER, headers=headers),
            batch.clear,
        ):
            with pytest.raises(RuntimeError) as caught:
                attempt()
            refused.append(str(caught.value))
        return fleximq.publication(header)

    headers = fleximq_kernel.HeaderCache(publication)
    fleximq_kernel.scan(frame, 0, batch, topics, SENDER, headers=headers)
    assert len(refused) == 5
    assert len(batch) == 1


def test_an_empty_batch_encodes_to_nothing() -> None:
    topics = new_topics()
    for target, order in SOURCES:
        assert kernel_encode(target, order, Batch(), topics) == b""


@pytest.mark.parametrize("order", ["big", "little"])
def test_a_header_is_found_in_the_first_row_that_has_it(order: Any) -> None:
    lamamq = PROTOCOLS["lamamq"]
    data = b"".join(
        publish(lamamq, order, headers=headers)
        for headers in ([], [("a", b"traceparent")], [("b", b"1"), ("traceparent", b"x")], [])
    )
    batch, _, _ = kernel_scan(lamamq, data, order)
    assert len(batch) == 4
    assert batch.find_header(b"traceparent") == (2, b"x")
    assert batch.find_header(b"traceparent", first_row=3) is None
    assert batch.find_header(b"traceparent", first_row=9) is None
    assert batch.find_header(b"tracepar") is None
    herald_batch, _, _ = kernel_scan(PROTOCOLS["herald"], HERALD, "little")
    assert herald_batch.find_header(b"traceparent") is None
