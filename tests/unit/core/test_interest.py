"""Messages of namespaces that nobody needs are not read; a new subscription misses none."""

import random
from collections.abc import Callable

import pytest

from penstock.core.interest import Interest
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.limits import INTEREST_PATTERNS_MAX
from tests.support.fakes import FakeClock
from tests.unit.core.test_catch_up import Client, words
from tests.unit.core.test_following import NODE, Pair

PATTERN = "channel/1"


class Reader:
    """The thread of a follower, and its queue: it decides before the event loop takes the work."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.apart: set[int] = set()  # offsets of row groups with references
        self.passed = 0
        self._decided = 0
        self._queue: list[Callable[[], None]] = []
        self.pair.following.pattern_found(PATTERN)

    def publish(self, number: int, *, apart: bool) -> None:
        """Publish on the other node."""
        if apart:
            self.apart.add(self.pair.other.log.next_offset)
        self.pair.send(str(number))

    def decide(self) -> None:
        """Take the next row group: read it, or pass over it."""
        kept, following = self.pair.other.log.kept, self.pair.following
        if self._decided == len(kept):
            return
        rows = kept[self._decided]
        self._decided += 1
        first, end = rows.base_offset, rows.base_offset + rows.count
        if first in self.apart and not following.wants(PATTERN):
            self.passed += 1
            self._queue.append(lambda: following.messages_passed_over(NODE, first, end, {PATTERN}))
        else:
            self._queue.append(lambda: following.messages_read(NODE, rows))

    def drain(self) -> None:
        """Let the event loop take some of the work."""
        if self._queue:
            self._queue.pop(0)()

    def settle(self) -> None:
        """Let the event loop do what is due, and the log answer."""
        self.pair.broker.timers.run_due()
        self.pair.answer_all()

    def finish(self) -> None:
        while self._queue or self._decided < len(self.pair.other.log.kept):
            self.decide()
            self.drain()
            self.settle()
        self.settle()


def test_what_nobody_needs_is_passed_over_and_positions_move_on() -> None:
    reader = Reader()
    other = reader.pair.desk.join("channel/2")
    for number in range(3):
        reader.publish(number, apart=True)
    reader.finish()
    assert reader.passed == 3
    assert other.live
    assert other.read() == []
    assert reader.pair.broker.catch_up is not None
    assert reader.pair.broker.catch_up.partitions[NODE].next_offset == 3


def test_messages_that_were_passed_just_before_a_subscription_come_from_the_log() -> None:
    reader = Reader()
    for number in range(4):
        reader.publish(number, apart=number in {1, 2})
        reader.decide()
    reader.drain()
    client = reader.pair.desk.join("channel/+")  # from offset 1 on
    reader.finish()
    assert reader.passed == 2
    assert client.read() == words("1 2 3")
    assert client.live
    reader.publish(4, apart=True)
    reader.finish()
    assert reader.passed == 2
    assert client.read() == words("4")


@pytest.mark.parametrize("seed", range(40))
def test_a_subscription_gets_all_messages_from_its_beginning_on(seed: int) -> None:
    """Publishing, deciding, delivering and subscribing happen in any order."""
    chance = random.Random(seed)
    reader = Reader()
    joined: list[tuple[Client, int, list[bytes]]] = []
    published = 0
    catch_up = reader.pair.broker.catch_up
    assert catch_up is not None
    for _ in range(400):
        match chance.randrange(7):
            case 0 | 1:
                reader.publish(published, apart=chance.random() < 0.7)
                published += 1
            case 2 | 3:
                reader.decide()
            case 4:
                reader.drain()
            case 5:
                reader.settle()
            case _ if chance.random() < 0.3:
                begins = catch_up.partitions[NODE].next_offset
                joined.append((reader.pair.desk.join("channel/#"), begins, []))
            case _ if joined:
                client, begins, got = joined.pop(chance.randrange(len(joined)))
                got += client.read()
                expected = [b"%d" % each for each in range(begins, begins + len(got))]
                assert got == expected
                reader.pair.broker.close(client.session)
    reader.finish()
    for client, begins, got in joined:
        assert got + client.read() == [b"%d" % each for each in range(begins, published)]


def test_a_pattern_that_is_watched_late_is_needed_until_all_were_compared() -> None:
    clock = FakeClock()
    subscribed: dict[str, object] = {f"other/{number}": None for number in range(100_000)}
    slices = Slices(Timers(clock), clock, first_steps=1)
    interest = Interest(slices, subscribed)
    interest.watch("plant/#")
    assert interest.wants("plant/#")
    assert interest.wants("unknown/#")
    assert interest.subscribed("other/+") == set(subscribed)
    interest.watch("other/1")
    assert interest.subscribed("other/1") == {"other/1"}, "it was not compared with all yet"
    while len(slices):
        slices.run()
    assert not interest.wants("plant/#")
    subscribed["plant/+"] = None
    interest.added("plant/+")
    assert interest.wants("plant/#")
    assert interest.subscribed("plant/#") == {"plant/+"}
    interest.removed("plant/+")
    assert not interest.wants("plant/#")


def test_patterns_beyond_the_limit_are_always_needed() -> None:
    clock = FakeClock()
    interest = Interest(Slices(Timers(clock), clock), {})
    for number in range(INTEREST_PATTERNS_MAX + 1):
        interest.watch(f"{number}/#")
    assert not interest.wants("0/#")
    assert interest.wants(f"{INTEREST_PATTERNS_MAX}/#")


def test_messages_that_could_not_be_read_come_from_the_log_for_any_pattern() -> None:
    """The follower leaves them to the log, also those of patterns that are not watched."""
    reader = Reader()
    for number in range(INTEREST_PATTERNS_MAX):
        reader.pair.following.pattern_found(f"{number}/#")
    client, other = reader.pair.desk.join("channel/1"), reader.pair.desk.join("plant/#")
    for number in range(2):
        reader.publish(number, apart=True)
    reader.pair.following.messages_passed_over(NODE, 0, 2, {"channel/#"})
    assert other.live
    reader.settle()
    assert client.read() == words("0 1")
    assert client.live
