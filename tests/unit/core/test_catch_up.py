"""Sessions that fall behind, replay or resume are served from the log: no gap, no repeat."""

from collections.abc import Callable

import pytest

from penstock._kernels import herald as herald_kernel
from penstock.core.access import ANYONE, Action, Principal, Rule
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.catch_up import RETRY_SECONDS
from penstock.core.sessions import Session
from penstock.errors import (
    AlreadySubscribed,
    InvalidPattern,
    LogError,
    LogUnavailable,
    NoHistory,
    NotAllowed,
    OffsetBelowHorizon,
    OffsetPastEnd,
    TierUnavailable,
)
from penstock.limits import (
    CATCH_UP_FETCHES_MAX,
    CATCH_UP_PIECE_BYTES,
    JOIN_QUEUE_BYTES_MAX,
    SLICE_SECONDS_MAX,
)
from penstock.ports import Stored
from penstock.protocols import PROTOCOLS
from penstock.storage.memory import MemoryLog
from penstock.wire import herald
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog
from tests.support.publishes import publish

HERALD = Encoding(PROTOCOLS["herald"], "little")


class Client:
    """A herald session, and the other end of its link."""

    def __init__(self, desk: "Desk", session: Session) -> None:
        self.desk = desk
        self.session = session
        self.link: RecordingLink = session.link  # type: ignore[assignment]

    @property
    def live(self) -> bool:
        return not self.session.feeds

    def subscribe(self, *texts: str) -> None:
        for text in texts:
            assert self.desk.broker.subscribe(self.session, text)

    def congest(self) -> None:
        self.link.congested = True

    def drain(self) -> None:
        self.link.congested = False
        self.desk.broker.drained(self.session)

    def read(self) -> list[bytes]:
        decoder = herald.Decoder()
        decoder.feed(self.link.read())
        return [packet.message for packet in decoder if isinstance(packet, herald.Message)]


class Desk:
    """A broker on a log that a test commits and reads."""

    def __init__(
        self, *, clock: FakeClock | None = None, log: KeptLog | None = None, **settings: object
    ) -> None:
        self.log = log or KeptLog()
        self.clock = clock or FakeClock()
        self.turns: list[Callable[[], None]] = []
        self.broker = Broker(
            log=self.log,
            reader=self.log,
            clock=self.clock,
            settings=BrokerSettings(**settings),  # type: ignore[arg-type]
        )
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.publisher = self.join()

    def restarted(self) -> "Desk":
        """Another broker on the same log."""
        return Desk(clock=self.clock, log=self.log)

    def join(self, *texts: str, echo: bool = True, name: str = "") -> Client:
        session = self.broker.open(HERALD, RecordingLink(), principal=ANYONE, echo=echo, name=name)
        client = Client(self, session)
        client.subscribe(*texts)
        return client

    def send(self, text: str, *, channel: int = 1, by: Client | None = None) -> None:
        """Publish one message for each word."""
        self.send_values(*text.encode().split(), channel=channel, by=by)

    def send_values(self, *values: bytes, channel: int = 1, by: Client | None = None) -> None:
        data = b"".join(
            publish(PROTOCOLS["herald"], "little", channel=channel, value=v) for v in values
        )
        batch, sender = self.broker.batch, (by or self.publisher).session
        herald_kernel.scan(data, 0, batch, self.broker.topics, sender.sender, order="little")
        assert len(batch) == len(values)
        self.broker.publish_batch(sender, batch)
        batch.clear()


def words(text: str) -> list[bytes]:
    return text.encode().split()


# --- Falling behind -------------------------------------------------------------------------------


def test_a_slow_subscriber_is_served_from_the_log_and_comes_back() -> None:
    desk = Desk()
    slow, quick = desk.join("#"), desk.join("#")
    desk.send("a b")
    slow.congest()
    desk.send("c d")
    desk.send("e")
    assert not desk.publisher.link.paused, "nobody waits for it"
    assert not slow.live
    assert slow.read() == words("a b")
    assert quick.read() == words("a b c d e")
    desk.log.commit()
    assert not desk.log.reads, "nothing is read for one that cannot take it"
    assert desk.broker.catch_up is not None
    assert desk.broker.catch_up.behind(slow.session) == 3
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("c d e")
    assert slow.live
    assert desk.broker.catch_up.behind(slow.session) == 0
    desk.send("f")
    assert slow.read() == words("f")
    assert desk.broker.counters.messages_sent[PROTOCOLS["herald"]] == 12
    assert not desk.broker.counters.messages_dropped


def test_a_subscriber_without_memory_for_many_bytes_is_served_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    poor = desk.join("#")
    values = [b"%d" % number + bytes(30_000) for number in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(type(poor.link.account), "has_room", lambda *_: False)
        desk.send_values(values[0])
        assert poor.read() == values[:1], "little is written at once"
        desk.send_values(*values)
    assert not poor.live
    assert poor.read() == []
    desk.log.commit()
    desk.broker.timers.run_due()
    desk.log.answer_all()
    assert poor.read() == values
    assert poor.live


def test_what_is_taken_but_not_written_comes_once_and_in_order() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    desk.log.commit()
    desk.send("b")
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("a")
    desk.send("c")
    assert not slow.live
    assert slow.read() == [], "b is before it, and nobody can read it yet"
    desk.log.commit()
    desk.log.answer_all()
    assert slow.read() == words("b c")
    assert slow.live


def test_what_was_lost_does_not_hold_it_up() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    desk.log.commit()
    desk.send("b")
    slow.drain()
    desk.log.answer_all()
    desk.send("c")
    desk.log.fail()
    desk.log.answer_all()
    assert slow.read() == words("a c"), "c was delivered to all who are live, as it was to it"
    assert slow.live
    slow.congest()
    desk.send("d")
    desk.log.fail()
    desk.send("e")
    desk.log.commit()
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("e"), "d is gone, and reading goes on behind it"
    assert slow.live


def test_a_queue_that_grows_too_long_is_left_to_the_log() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    slow.drain()
    feed = slow.session.feeds.get(0)
    assert feed is not None
    assert feed.joins_at == 1
    big = [bytes([n]) * 1_000_000 for n in range(JOIN_QUEUE_BYTES_MAX // 1_000_000 + 1)]
    for value in big[:-1]:
        desk.send_values(value)
    assert feed.queue_bytes > JOIN_QUEUE_BYTES_MAX * 0.9
    desk.send_values(big[-1])
    assert feed.joins_at is None
    assert not feed.queue
    desk.log.commit()
    desk.log.answer_all()
    assert slow.read() == [b"a", *big]
    assert slow.live


def test_a_large_group_is_written_in_pieces_as_the_link_takes_them() -> None:
    desk = Desk()
    slow = desk.join("#")
    values = [bytes([n]) * 200_000 for n in range(20)]
    slow.congest()
    desk.send_values(*values)
    desk.log.commit()
    seen: list[bytes] = []
    write = slow.link.write

    def write_and_congest(data: bytes) -> None:
        write(data)
        slow.congest()

    slow.link.write = write_and_congest  # type: ignore[method-assign]
    turns = 0
    while len(seen) < len(values):
        turns += 1
        slow.drain()
        desk.log.answer_all()
        piece = slow.read()
        assert sum(map(len, piece)) <= CATCH_UP_PIECE_BYTES + 200_000
        seen += piece
        assert not desk.log.reads, "what was fetched is dropped while the link is congested"
    assert seen == values
    assert turns > 3


def test_many_slow_subscribers_take_turns_and_few_reads_are_under_way() -> None:
    desk = Desk()
    clients = [desk.join("#") for _ in range(10)]
    for client in clients:
        client.congest()
    for text in ("a", "b", "c"):
        desk.send(text)
    desk.log.commit()
    for client in clients:
        client.drain()
    got = [0] * len(clients)
    while desk.log.reads:
        assert len(desk.log.reads) <= CATCH_UP_FETCHES_MAX
        desk.log.answer()
        got = [n + len(client.read()) for n, client in zip(got, clients, strict=True)]
        assert max(got) - min(got) <= 1, "one group each before anyone has the next"
    assert got == [3] * 10


def test_rows_are_chosen_by_the_subscriptions_as_they_are_then() -> None:
    desk = Desk()
    slow = desk.join("channel/1", "channel/2")
    slow.congest()
    desk.send("a1")
    desk.send("a2", channel=2)
    slow.subscribe("channel/3")
    desk.send("b3", channel=3)
    desk.send("b2", channel=2)
    assert desk.broker.unsubscribe(slow.session, "channel/2")
    desk.send("c3", channel=3)
    desk.log.commit()
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("a1 b3 c3")
    assert slow.live
    desk.send("d1")
    desk.send("d2", channel=2)
    desk.send("d3", channel=3)
    assert slow.read() == words("d1 d3")


def test_a_subscription_that_comes_late_does_not_bring_what_was_before_it() -> None:
    desk = Desk()
    slow = desk.join("channel/1")
    slow.congest()
    desk.send("a1")
    desk.send("a2", channel=2)
    slow.subscribe("channel/2")
    desk.send("b2", channel=2)
    desk.log.commit()
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("a1 b2")


def test_taken_back_while_joining_means_not_one_message_more() -> None:
    desk = Desk()
    slow = desk.join("channel/1", "channel/2")
    slow.congest()
    desk.send("a")
    slow.drain()
    desk.send("b1")
    desk.send("b2", channel=2)
    assert slow.session.feeds.get(0) is not None
    assert slow.session.feeds[0].queue
    assert desk.broker.unsubscribe(slow.session, "channel/2")
    desk.log.commit()
    desk.log.answer_all()
    assert slow.read() == words("a b1")
    assert slow.live


def test_who_gives_up_all_subscriptions_reads_nothing() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    desk.log.commit()
    assert desk.broker.unsubscribe(slow.session, "#")
    slow.drain()
    assert not desk.log.reads
    assert slow.live
    slow.subscribe("#")
    desk.send("b")
    assert slow.read() == words("b")


def test_without_echo_a_slow_publisher_does_not_hear_itself() -> None:
    desk = Desk()
    quiet = desk.join("#", echo=False)
    quiet.congest()
    desk.send("a")
    desk.send("b", by=quiet)
    desk.send("c")
    desk.log.commit()
    quiet.drain()
    desk.log.answer_all()
    assert quiet.read() == words("a c")


def test_without_echo_it_does_hear_who_had_its_number_before() -> None:
    desk = Desk()
    before = desk.join()
    desk.send("a", by=before)
    desk.broker.close(before.session)
    desk.broker.sessions._next = before.session.number
    quiet = desk.join("#@earliest", echo=False)
    assert quiet.session.number == before.session.number
    desk.send("b", by=quiet)
    desk.log.commit()
    desk.log.answer_all()
    assert quiet.read() == words("a")


def test_one_that_leaves_is_forgotten_also_while_it_is_being_read_for() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    desk.log.commit()
    slow.drain()
    assert len(desk.log.reads) == 1
    desk.broker.close(slow.session)
    desk.log.answer_all()
    assert slow.read() == []
    other = desk.join("#@earliest")
    desk.log.answer_all()
    assert other.read() == words("a")


def test_slow_subscribers_are_disconnected_where_that_is_the_setting() -> None:
    desk = Desk(disconnect_slow_consumers=True, out_buffer_bytes_max=100)
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    assert slow.read() == words("a")
    slow.link.buffered = 101
    desk.send("b")
    assert slow.link.aborted
    assert not desk.publisher.link.paused


def test_damage_is_counted_and_reading_goes_on_behind_it() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    for text in ("a", "b c", "d"):
        desk.send(text)
    desk.log.commit()
    desk.log.damage(desk.log.kept[1])
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("a d")
    assert slow.live
    assert desk.broker.counters.messages_unreadable[PROTOCOLS["herald"]] == 2


def test_rows_that_cannot_be_loaded_are_damage_too() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    desk.send("a")
    desk.send("b")
    desk.log.commit()

    def broken(*_: object) -> None:
        raise ValueError("offsets that run backwards")

    desk.log.kept[0].load = broken  # type: ignore[method-assign]
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("b")
    assert desk.broker.counters.messages_unreadable[PROTOCOLS["herald"]] == 1


def test_one_that_retention_overtook_goes_on_at_the_horizon() -> None:
    desk = Desk()
    slow = desk.join("#")
    slow.congest()
    for text in ("a", "b", "c"):
        desk.send(text)
    desk.log.commit()
    desk.log.forget(2)
    slow.drain()
    desk.log.answer_all()
    assert slow.read() == words("c")
    assert slow.session.dropped == desk.broker.counters.messages_dropped[PROTOCOLS["herald"]] == 2


def test_a_log_that_cannot_be_read_costs_the_connection_and_no_other() -> None:
    class Unreadable(KeptLog):
        def _find(self, offset: int, topics: object = None) -> LogError:  # noqa: ARG002
            return LogUnavailable("input/output error")

    desk = Desk()
    slow, other = desk.join("#"), desk.join("#")
    slow.congest()
    desk.send("a")
    desk.log.commit()
    desk.log.__class__ = Unreadable
    slow.drain()
    desk.log.answer_all()
    assert slow.link.aborted
    assert not other.link.aborted


def test_a_reader_that_answers_at_once_delivers_a_little_later() -> None:
    class Hasty(KeptLog):
        def fetch(self, offset: int, then: object, topics: object = None) -> None:  # noqa: ARG002
            then(self._find(offset))  # type: ignore[operator]

    desk = Desk()
    desk.send("a")
    desk.send("b")
    desk.log.commit()
    desk.log.__class__ = Hasty
    client = desk.join("#@earliest")
    assert client.read() == [], "its answer goes first"
    desk.broker.timers.run_due()
    assert client.read() == words("a b")
    assert client.live


def test_a_failure_of_ours_costs_one_connection() -> None:
    desk = Desk()
    desk.send("a")
    desk.log.commit()
    client = desk.join("#@earliest")

    def impossible(*_: object) -> Stored:
        raise RuntimeError("impossible")

    desk.log.kept[0].load = impossible  # type: ignore[method-assign, assignment]
    desk.log.answer_all()
    assert client.link.aborted
    assert desk.broker.counters.connections_failed["internal error"] == 1


# --- History ------------------------------------------------------------------------------------


def test_history_comes_first_then_what_is_live() -> None:
    desk = Desk()
    desk.send("a b")
    desk.log.commit()
    desk.send("c")
    client = desk.join("#@earliest")
    desk.send("d")
    assert client.read() == []
    desk.log.answer_all()
    assert client.read() == words("a b")
    desk.send("e")
    desk.log.commit()
    desk.log.answer_all()
    assert client.read() == words("c d e")
    assert client.live
    desk.send("f")
    assert client.read() == words("f")


def test_history_starts_at_an_offset_or_a_time() -> None:
    desk = Desk()
    for text in ("a", "b", "c", "d"):
        desk.send(text)
        desk.log.commit()
        desk.clock.seconds += 60
    starts = {
        "#0": "a b c d",
        "#2": "c d",
        "#4": "",
        "-0s": "",
        "-1m": "d",
        "-2.5m": "c d",
        "-9w": "a b c d",
        "2023-11-14T22:30:00Z": "a b c d",  # the very second of a, where the clock starts
        "2023-11-14T22:30:01Z": "b c d",
        "2023-11-14T23:33:00+01:00": "d",
        "2023-11-14": "a b c d",
        "1969-01-01": "a b c d",
        "2999-01-01": "",
    }
    for start, expected in starts.items():
        client = desk.join(f"#@{start}")
        desk.log.answer_all()
        assert client.read() == words(expected), start
        assert client.live
    desk.log.forget(1)
    client = desk.join("#@earliest")
    desk.log.answer_all()
    assert client.read() == words("b c d")


def test_a_time_to_come_is_now() -> None:
    desk = Desk()
    desk.send("a")
    client = desk.join("#@2999-01-01")
    assert client.live
    desk.send("b")
    assert client.read() == words("b")


def test_a_time_with_nothing_behind_it_brings_what_comes_while_it_is_looked_up() -> None:
    desk = Desk()
    desk.send("a")
    desk.log.commit()
    desk.clock.seconds += 1
    client = desk.join("#@-0s")
    desk.send("b")
    desk.log.commit()
    desk.log.answer_all()
    assert client.read() == words("b")
    assert client.live


@pytest.mark.parametrize("failed", [OffsetPastEnd(2, 2), TierUnavailable(2)])
def test_a_time_is_looked_up_again_while_the_log_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, failed: LogError
) -> None:
    desk = Desk()
    desk.send("a")
    desk.log.commit()
    desk.clock.seconds += 60
    desk.send("b")
    desk.log.commit()
    with monkeypatch.context() as patch:
        patch.setattr(desk.log, "find_time", lambda _, then: then(failed))
        client = desk.join("#@-1s")
        desk.log.answer_all()
        assert client.read() == []
    desk.clock.seconds += RETRY_SECONDS
    desk.broker.timers.run_due()
    desk.log.answer_all()
    assert client.read() == words("b")
    assert client.live


def test_a_subscription_taken_back_while_its_time_is_looked_up_brings_nothing() -> None:
    desk = Desk()
    desk.send("a")
    desk.log.commit()
    client = desk.join("#@-1h")
    assert desk.broker.unsubscribe(client.session, "#")
    desk.log.answer_all()
    assert client.read() == []
    assert client.live
    gone = desk.join("#@-1h")
    desk.broker.close(gone.session)
    desk.log.answer_all()
    assert gone.read() == []


def test_places_that_nobody_can_start_from_are_refused_and_change_nothing() -> None:
    desk = Desk()
    desk.send("a b c")
    desk.log.commit()
    desk.log.forget(2)
    client = desk.join()
    with pytest.raises(OffsetBelowHorizon):
        client.subscribe("#@#1")
    with pytest.raises(OffsetPastEnd):
        client.subscribe("#@#4")
    with pytest.raises(InvalidPattern):
        client.subscribe("@earliest")
    assert not client.session.subscriptions
    assert client.live
    desk.send("d")
    assert client.read() == []


def test_a_broker_without_a_log_has_no_history() -> None:
    broker = Broker(log=MemoryLog(), clock=FakeClock())
    session = broker.open(HERALD, RecordingLink(), principal=ANYONE)
    for text in ("a@earliest", "a@-1m", "a@#0"):
        with pytest.raises(NoHistory):
            broker.subscribe(session, text)
    assert broker.subscribe(session, "a@home")
    assert list(session.subscriptions) == ["a@home"]


def test_rules_apply_to_the_pattern_without_its_place() -> None:
    rule = Rule(allow=True, actions=frozenset({Action.SUBSCRIBE}), pattern="channel/1")
    principal = Principal("p", [rule], default=False)
    desk = Desk()
    session = desk.broker.open(HERALD, RecordingLink(), principal=principal)
    assert desk.broker.subscribe(session, "channel/1@earliest")
    with pytest.raises(NotAllowed):
        desk.broker.subscribe(session, "channel/2@earliest")


def test_a_pattern_is_one_subscription_with_and_without_a_place() -> None:
    desk = Desk()
    desk.send("a")
    desk.log.commit()
    client = desk.join("channel/1")
    with pytest.raises(AlreadySubscribed, match="channel/1"):
        desk.broker.subscribe(client.session, "channel/1@earliest")
    assert desk.broker.unsubscribe(client.session, "channel/1@earliest")
    client.subscribe("channel/1@earliest")
    assert not desk.broker.subscribe(client.session, "channel/1")
    assert desk.broker.unsubscribe(client.session, "channel/1")
    assert not desk.broker.unsubscribe(client.session, "channel/1@#0")
    desk.log.answer_all()
    desk.send("b")
    assert client.read() == []


def test_what_is_live_waits_for_history_and_nothing_comes_twice() -> None:
    desk = Desk()
    desk.send("a1")
    desk.send("a2", channel=2)
    desk.log.commit()
    client = desk.join("channel/+")
    desk.send("b1")
    assert client.read() == words("b1")
    client.subscribe("channel/1@earliest")
    desk.send("c1")
    desk.send("c2", channel=2)
    assert client.read() == []
    desk.log.commit()
    desk.log.answer_all()
    assert client.read() == words("a1 b1 c1 c2"), "history of the one, then all in their order"
    assert client.live


def test_several_histories_meet() -> None:
    desk = Desk()
    for n in range(6):
        desk.send_values(b"1-%d" % n, b"x")
        desk.send_values(b"2-%d" % n, channel=2)
        desk.send_values(b"3-%d" % n, channel=3)
    desk.log.commit()
    client = desk.join("channel/1@#8", "channel/2@#3", "channel/3@#20")
    client.subscribe("channel/4")
    desk.send("4", channel=4)
    desk.log.commit()
    desk.log.answer_all()
    assert client.read() == words("2-1 1-2 x 2-2 1-3 x 2-3 1-4 x 2-4 1-5 x 2-5 3-5 4")
    assert client.live
    assert set(client.session.subscriptions.values()) == {None}


def test_a_history_asked_for_while_joining_is_whole() -> None:
    desk = Desk()
    desk.send("a2", channel=2)
    desk.log.commit()
    slow = desk.join("channel/1")
    slow.congest()
    desk.send("b1")
    slow.drain()
    desk.send("c1")
    desk.send("c2", channel=2)
    slow.subscribe("channel/2@earliest")
    desk.send("d2", channel=2)
    desk.log.commit()
    desk.log.answer_all()
    assert slow.read() == words("a2 b1 c1 c2 d2")
    assert slow.live


def test_a_time_asked_for_while_joining_leaves_no_gap() -> None:
    desk = Desk()
    slow = desk.join("channel/1")
    slow.congest()
    desk.send("a1")
    slow.drain()
    desk.send("b2", channel=2)
    desk.log.commit()
    desk.clock.seconds += 2
    desk.send("c2", channel=2)
    slow.subscribe("channel/2@-1s")
    desk.send("d2", channel=2)
    desk.log.answer_all()
    desk.log.commit()
    desk.log.answer_all()
    assert slow.read() == words("a1 c2 d2")
    assert slow.live


def test_a_subscription_made_while_joining_brings_what_is_behind_it() -> None:
    for overflow in (False, True):
        desk = Desk()
        slow = desk.join("channel/1")
        slow.congest()
        desk.send("a1")
        slow.drain()
        desk.send("b1")
        desk.send("b2", channel=2)
        slow.subscribe("channel/2")
        desk.send("c2", channel=2)
        if overflow:
            assert slow.session.feeds.get(0) is not None
            slow.session.feeds[0].stop_joining()
        desk.log.commit()
        desk.log.answer_all()
        assert slow.read() == words("a1 b1 c2")
        assert slow.live


def test_a_history_that_is_not_wanted_any_more_is_not_read() -> None:
    desk = Desk()
    for n in range(10):
        desk.send_values(b"%d" % n)
    desk.log.commit()
    client = desk.join("channel/1@earliest")
    desk.log.answer()
    desk.log.answer()
    assert client.read() == words("0 1")
    assert desk.broker.unsubscribe(client.session, "channel/1")
    desk.log.answer_all()
    assert client.read() == []
    assert client.live


def test_history_of_other_topics_is_not_read() -> None:
    desk = Desk()
    for number in range(100):
        desk.send(f"{number}", channel=2 if number in (7, 70) else 1)
    desk.log.commit()
    client = desk.join("channel/2@earliest")
    desk.log.answer_all()
    assert client.read() == words("7 70")
    assert desk.log.groups_read == 2
    assert client.live


@pytest.mark.parametrize("groups_max", [1, 3, 100])
def test_a_topic_that_is_added_while_history_is_read_is_not_left_out(groups_max: int) -> None:
    desk = Desk()
    desk.log.groups_max = groups_max
    for number in range(12):
        desk.send(f"{number}", channel=number % 3)
    desk.log.commit()
    client = desk.join("channel/0@earliest")
    client.subscribe("channel/1@earliest")  # while the first read is under way
    desk.log.answer()
    client.subscribe("channel/2@#4")
    desk.log.answer_all()
    expected = [n for n in range(12) if n % 3 != 2 or n >= 4]
    assert sorted(map(int, client.read())) == expected
    assert client.live


def test_history_that_was_read_together_stops_where_more_topics_begin() -> None:
    """The second subscription starts at offset 4: what was left out before it is read again."""
    desk = Desk()
    desk.log.groups_max = 100
    for number in range(9):
        desk.send(f"{number}", channel=number % 3)
    desk.log.commit()
    client = desk.join("channel/0@earliest", "channel/1@#4")
    desk.log.answer_all()
    assert client.read() == words("0 3 4 6 7")


class SlowClock(FakeClock):
    """Whatever asks for the time takes half a slice."""

    def monotonic(self) -> float:
        self.seconds += SLICE_SECONDS_MAX / 2
        return super().monotonic()


def slow_desk() -> Desk:
    """A broker that writes a message of history in each turn; `desk.turns` collects the turns."""
    desk = Desk(clock=SlowClock())
    desk.log.groups_max = 100
    desk.broker.slices.schedule = desk.turns.append
    for number in range(9):
        desk.send_values(b"%d" % number, channel=number % 3)
    desk.log.commit()
    return desk


def test_history_is_written_in_several_turns() -> None:
    desk = slow_desk()
    client = desk.join("#@earliest")
    desk.log.answer()
    sizes = [len(client.read())]
    while desk.turns:
        desk.turns.pop(0)()
        desk.log.answer_all()
        sizes.append(len(client.read()))
    assert sum(sizes) == 9
    assert max(sizes) <= 2
    assert client.live


def test_a_topic_that_is_added_between_two_turns_is_not_left_out() -> None:
    desk = slow_desk()
    client = desk.join("channel/0@earliest")
    desk.log.answer()
    assert desk.turns
    client.subscribe("channel/1@earliest")
    found = client.read()
    while desk.turns or desk.log.reads:
        if desk.turns:
            desk.turns.pop(0)()
        desk.log.answer_all()
        found += client.read()
    assert sorted(found) == words("0 1 3 4 6 7")
    assert client.live


def test_a_client_that_leaves_between_two_turns_gets_no_more() -> None:
    desk = slow_desk()
    client, other = desk.join("channel/0@earliest"), desk.join("channel/1@earliest")
    desk.log.answer_all()
    client.read()
    desk.broker.close(client.session)
    found = other.read()
    while desk.turns or desk.log.reads:
        if desk.turns:
            desk.turns.pop(0)()
        desk.log.answer_all()
        found += other.read()
    assert client.read() == []
    assert found == words("1 4 7")
    assert other.live


def test_history_of_thousands_of_topics_is_read_once() -> None:
    desk = Desk()
    client = desk.join()
    for n in range(200):
        desk.send_values(b"%d" % n, channel=n)
    desk.log.commit()
    client.subscribe(*(f"channel/{n}@earliest" for n in range(0, 200, 2)))
    reads = 0
    while desk.log.reads:
        desk.log.answer()
        reads += 1
    assert client.read() == [b"%d" % n for n in range(0, 200, 2)]
    assert reads == 201, "the first one was for the first topic alone"


# --- Coming back ----------------------------------------------------------------------------------


def test_a_client_that_is_back_gets_what_it_missed() -> None:
    desk = Desk()
    client = desk.join("channel/1", name="c")
    desk.send("a")
    assert client.read() == words("a")
    desk.broker.keep_for_resume(client.session)
    desk.broker.close(client.session)
    desk.send("b")
    desk.send("x", channel=2)
    desk.log.commit()
    back = desk.join(name="c")
    kept = desk.broker.resumption.take(back.session)
    assert kept == {"channel/1": {0: 1}}
    for pattern, position in kept.items():
        assert desk.broker.resume(back.session, pattern, position)
        assert not desk.broker.resume(back.session, pattern, position)
    desk.send("c")
    desk.log.commit()
    desk.log.answer_all()
    assert back.read() == words("b c")
    assert back.live


def test_also_what_it_had_not_been_sent_when_it_was_cut_off() -> None:
    desk = Desk()
    client = desk.join("channel/1", name="c")
    client.congest()
    desk.send("a")
    client.subscribe("channel/2")
    desk.broker.keep_for_resume(client.session)
    desk.broker.close(client.session)
    assert desk.broker.resumption.take(client.session) == {"channel/1": {0: 0}, "channel/2": {0: 1}}


def test_what_is_no_longer_kept_is_left_out_of_what_it_missed() -> None:
    desk = Desk()
    desk.send("a b")
    desk.send("c")
    desk.log.commit()
    desk.log.forget(2)
    client = desk.join()
    assert desk.broker.resume(client.session, "channel/1", {0: 0})
    desk.log.answer_all()
    assert client.read() == words("c")
    assert not desk.broker.counters.messages_dropped
    memory = Broker(log=MemoryLog(), clock=FakeClock())
    session = memory.open(HERALD, RecordingLink(), principal=ANYONE)
    assert memory.resume(session, "channel/1", {0: 5})
    assert list(session.subscriptions) == ["channel/1"]
