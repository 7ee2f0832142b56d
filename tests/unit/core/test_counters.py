"""Counts of topics: those that come later have their place, and a snapshot stays as it was."""

from penstock._kernels import herald
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.core.access import ANYONE
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.counters import TopicCount, TopicCounts
from penstock.protocols.herald import HERALD
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.herald_bytes import publish
from tests.unit.core.test_catch_up import Desk


def scanned(topics: TopicTable, *channels: int) -> Batch:
    batch = Batch()
    data = b"".join(publish(channel, b"abc") for channel in channels)
    sender = Sender(bytes(16), 1000)
    herald.scan(data, 0, batch, topics, sender, order="little")
    batch.timestamp_us = 77
    return batch


def test_topics_may_come_one_by_one() -> None:
    topics = TopicTable()
    counts = TopicCounts(topics)
    assert counts.of(0) == TopicCount(0, 0, 0, 0)
    for channel in range(100):
        identifier = topics.bind_channel(channel, f"channel/{channel}")
        counts.add(scanned(topics, channel, channel), 10 * channel)
        assert counts.of(identifier) == TopicCount(2, 6, 10 * channel + 1, 77)
    assert counts.of(0).messages == 2
    assert counts.of(5000) == TopicCount(0, 0, 0, 0)


def test_the_busiest_since_a_snapshot_say_what_they_got() -> None:
    topics = TopicTable()
    counts = TopicCounts(topics)
    old = topics.bind_channel(1, "old")
    counts.add(scanned(topics, 1, 1, 1, 1), 0)
    before = counts.snapshot()
    new = topics.bind_channel(2, "new")
    counts.add(scanned(topics, 2, 1, 2), 4)
    assert counts.busiest_since(before, most=5) == [
        (new, TopicCount(2, 6, 6, 77)),
        (old, TopicCount(1, 3, 5, 77)),
    ]
    assert counts.busiest_since(before, most=1) == [(new, TopicCount(2, 6, 6, 77))]
    assert counts.busiest_since(counts.snapshot(), most=5) == []


def test_a_client_that_is_cut_off_counts_once() -> None:
    settings = BrokerSettings(disconnect_slow_consumers=True)
    broker = Broker(log=MemoryLog(), clock=FakeClock(), settings=settings)
    link = RecordingLink()
    encoding = Encoding(HERALD, "little")
    session = broker.open(encoding, link, name="lazy", principal=ANYONE)
    broker.delivery.send(session, b"frame", 1)
    assert (session.messages_sent, session.bytes_sent) == (1, 5)
    link.buffered = settings.out_buffer_bytes_max + 1
    for _ in range(3):
        broker.delivery.send(session, b"frame", 1)
    assert link.aborted
    counters = broker.counters
    assert counters.cut_off == {HERALD: 1}
    assert counters.messages_dropped == {HERALD: 3}
    assert (counters.messages_sent, counters.bytes_sent) == (
        {HERALD: 1},
        {HERALD: 5},
    )


def test_bytes_and_topics_are_counted_live_and_from_the_log() -> None:
    desk = Desk()
    live, late = desk.join("#"), desk.join()
    desk.send("ab cde")
    desk.log.commit()
    assert desk.broker.resume(late.session, "#", {0: 0})
    desk.log.answer_all()
    size = len(live.link.read())
    assert size > len("abcde")
    assert len(late.link.read()) == live.session.bytes_sent == late.session.bytes_sent == size
    counters = desk.broker.counters
    assert (counters.messages_sent[HERALD], counters.bytes_sent[HERALD]) == (4, 2 * size)
    desk.broker.delivery.send(live.session, b"head", 1, payload=b"payload")
    assert live.session.bytes_sent == size + len(b"headpayload")
    identifier = desk.broker.topics.find("channel/1")
    assert identifier is not None
    assert desk.broker.topic_counts.of(identifier)[:3] == (2, 5, 1)
