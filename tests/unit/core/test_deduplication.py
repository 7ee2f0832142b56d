"""The keys of messages: how long they are known, how many, and when they are forgotten."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

import pytest

from penstock.core.deduplication import (
    Deduplication,
    StoredKey,
    correlation_of,
    digest_of_correlation,
    key_digest,
)
from penstock.core.fair_shares import FairShares
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.errors import InvalidMessageKey
from penstock.limits import DEDUPE_STEP_KEYS
from penstock.memory import MemoryBudget, Purpose
from penstock.model import Durability
from penstock.ports import Receipt
from tests.support.failing_log import Desk
from tests.support.fakes import FakeClock
from tests.support.lamamq_bytes import BIG, CHOICE, authentication, header, push

KEY = b"penstock-dedupe"
A, B = key_digest("p", "t", b"a"), key_digest("p", "t", b"b")


def receipt(offset: int, commit: int = 1) -> Receipt:
    return Receipt(offset, commit, Durability.FSYNC)


def ready(keys: Deduplication) -> Deduplication:
    keys.when_ready(lambda: None)
    return keys


def new_keys(
    clock: FakeClock, memory: MemoryBudget | None = None, **settings: float
) -> Deduplication:
    slices = Slices(Timers(clock), clock)
    return Deduplication(clock, memory or MemoryBudget(), slices, **settings)  # type: ignore[arg-type]


def known(clock: FakeClock | None = None, **settings: float) -> Deduplication:
    return ready(new_keys(clock or FakeClock(), **settings))


def test_principal_topic_and_key_make_the_digest_wherever_they_are_divided() -> None:
    parts = ["", "a", "aa", "ab", "b"]
    made = {
        key_digest(principal, topic, key.encode())
        for principal, topic, key in itertools.product(parts, parts, parts[1:])
    }
    assert len(made) == 5 * 5 * 4


@pytest.mark.parametrize("size", [0, 256])
def test_a_key_has_1_to_255_bytes(size: int) -> None:
    assert key_digest("p", "t", bytes(255)) != key_digest("p", "t", bytes(1))
    with pytest.raises(InvalidMessageKey):
        key_digest("p", "t", bytes(size))


def test_the_column_correlation_gives_the_digest_back_and_no_other_text_does() -> None:
    assert digest_of_correlation(correlation_of(A)) == A
    for text in ("", "http", correlation_of(A) + "/1/0", "x" + correlation_of(A), "dedupe:ff"):
        assert digest_of_correlation(text) is None


def test_a_key_is_known_for_the_window_from_its_first_message_on() -> None:
    clock = FakeClock()
    keys = known(clock, seconds=10)
    assert keys.find(A, "t") is None
    keys.add(A, receipt(7), "p")
    clock.seconds += 10
    assert keys.find(A, "t") == receipt(7)
    clock.seconds += 0.001
    assert keys.find(A, "t") is None
    assert (len(keys), keys.duplicates, keys.forgotten) == (0, 1, 0)


def test_of_too_many_keys_the_oldest_is_forgotten_and_counted() -> None:
    keys = known(keys_max=2)
    digests = [key_digest("p", "t", b"%d" % number) for number in range(3)]
    for number, digest in enumerate(digests):
        keys.add(digest, receipt(number), "p")
    assert [keys.find(digest, "t") is not None for digest in digests] == [False, True, True]
    assert (len(keys), keys.forgotten) == (2, 1)


def test_many_keys_of_one_client_do_not_shorten_the_time_of_others() -> None:
    keys = known(keys_max=100)
    victims = [key_digest("victim", "t", b"%d" % number) for number in range(40)]
    for number, digest in enumerate(victims):
        keys.add(digest, receipt(number), "victim")
    flood = [key_digest("eve", "t", b"%d" % number) for number in range(1000)]
    for number, digest in enumerate(flood):
        keys.add(digest, receipt(40 + number), "eve")
    assert all(keys.find(digest, "t") is not None for digest in victims)
    assert [keys.find(digest, "t") is not None for digest in flood[-61:]] == [False] + [True] * 60
    assert (len(keys), keys.forgotten) == (100, 940)


def test_a_key_that_is_published_again_after_its_time_is_kept_once() -> None:
    clock = FakeClock()
    keys = known(clock, seconds=10, keys_max=2)
    keys.add(A, receipt(0), "p")
    clock.seconds += 0.5
    keys.add(B, receipt(1), "p")
    clock.seconds += 9.6
    assert keys.find(A, "t") is None
    keys.add(A, receipt(2), "q")
    assert [keys.find(B, "t"), keys.find(A, "t"), len(keys)] == [receipt(1), receipt(2), 2]
    clock.seconds += 1
    assert [keys.find(B, "t"), keys.find(A, "t"), len(keys)] == [None, receipt(2), 1]


def test_keys_are_read_and_forgotten_in_steps() -> None:
    """Once broken: 65,536 keys that were forgotten together stalled the event loop for 1.2 s."""
    clock, loader, done = FakeClock(), Loader(), list[int]()
    timers = Timers(clock)
    slices = Slices(timers, clock, first_steps=1)
    keys = Deduplication(clock, MemoryBudget(), slices, seconds=10)
    keys.load = loader.load
    keys.when_ready(lambda: done.append(1))
    digests = [key_digest("p", "t", b"%d" % number) for number in range(1000)]
    loader.then([StoredKey(digest, 5, clock.now_us()) for digest in digests])
    assert (done, len(keys)) == ([], DEDUPE_STEP_KEYS)
    while len(slices):
        slices.run()
    assert (done, len(keys)) == ([1], 1000)
    clock.seconds += 11
    assert keys.find(A, "t") is None
    assert 1000 - DEDUPE_STEP_KEYS <= len(keys) < 1000
    assert keys.find(digests[-1], "t") is None  # though it is not forgotten yet
    while len(slices):
        slices.run()
    assert len(keys) == 0


def test_the_owner_that_has_most_is_always_known() -> None:
    random, shares, counts = Random(7), FairShares(), Counter[str]()
    for _ in range(5000):
        owner = random.choice("abcdefg")
        if counts[owner] and random.random() < 0.55:
            shares.remove(owner)
            counts[owner] -= 1
        else:
            shares.add(owner)
            counts[owner] += 1
        counts = +counts
        assert len(shares) == len(counts)
        if counts:
            assert counts[shares.largest()] == max(counts.values())


def test_memory_of_keys_is_counted_and_returned() -> None:
    clock, memory = FakeClock(), MemoryBudget()
    keys = ready(new_keys(clock, memory, seconds=1))
    before = memory.used
    keys.add(A, receipt(0), "p")
    assert memory.fixed(Purpose.KEYS) == memory.used - before > 0
    clock.seconds += 2
    assert keys.find(A, "t") is None
    assert memory.used == before


def test_keys_whose_commits_fail_are_forgotten_and_others_are_not() -> None:
    keys = known()
    keys.add(A, receipt(0, 1), "p")
    keys.add(B, receipt(1, 2), "p")
    keys.failed(written_commit=1)
    assert keys.find(A, "t") == receipt(0, 1)
    assert keys.find(B, "t") is None


class Loader:
    """Keys of an earlier run, which a test hands over."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.then: Callable[[Iterable[StoredKey]], None]

    def load(self, since_us: int, then: Callable[[Iterable[StoredKey]], None]) -> None:
        self.asked.append(since_us)
        self.then = then


def test_messages_wait_until_the_keys_of_earlier_runs_are_read_once() -> None:
    clock, loader, done = FakeClock(), Loader(), list[int]()
    keys = new_keys(clock, seconds=10)
    keys.load = loader.load
    keys.when_ready(lambda: done.append(1))
    keys.when_ready(lambda: done.append(2))
    assert done == []
    assert loader.asked == [clock.now_us() - 10_000_000]
    loader.then([StoredKey(A, 5, clock.now_us() - 9_000_000)])
    keys.when_ready(lambda: done.append(3))
    assert done == [1, 2, 3]
    assert len(loader.asked) == 1
    assert keys.find(A, "t") == Receipt(5, 0, Durability.FSYNC)
    clock.seconds += 2  # its time counts from its message, not from the start
    assert keys.find(A, "t") is None


# --- Outcomes -------------------------------------------------------------------------------------


def joined() -> Desk:
    desk = Desk()
    desk.send(authentication(b"c", None, order=BIG) + CHOICE)
    desk.read()
    return desk


def keyed(identifier: int, value: bytes = b"v") -> bytes:
    return push(identifier, b"t", value, headers=[(KEY, b"k")], order=BIG)


def done(identifier: int) -> bytes:
    return header(identifier, 0, order=BIG)


def test_a_duplicate_waits_for_the_outcome_of_the_first() -> None:
    desk = joined()
    desk.send(keyed(1) + keyed(2))
    assert desk.read() == b""
    desk.commit()
    assert desk.read() == done(1) + done(2)
    assert len(desk.log.records) == 1
    desk.send(keyed(3))
    assert desk.read() == done(3)


def test_a_duplicate_of_another_connection_waits_too() -> None:
    desk = joined()
    desk.send(keyed(1))
    other = desk.connect()
    data = authentication(b"d", None, order=BIG) + CHOICE + keyed(9)
    desk.link, first = other, desk.link
    desk.send(data)
    offered = desk.read()
    assert not offered.endswith(done(9))
    desk.commit()
    assert desk.read() == done(9)
    assert first.read() == done(1)
    assert len(desk.log.records) == 1


def test_a_first_message_that_fails_leaves_no_key_and_its_duplicates_fail_with_it() -> None:
    desk = joined()
    desk.send(keyed(1) + keyed(2))
    desk.fail()
    answers = desk.read()
    assert answers[:5] == header(1, 1, order=BIG)
    assert answers.count(b"could not be written") == 2
    desk.send(keyed(3))
    desk.commit()
    assert desk.read() == done(3)
    assert len(desk.log.records) == 2


def test_a_message_that_the_log_refuses_leaves_no_key() -> None:
    desk = joined()
    desk.log.full = True
    desk.send(keyed(1))
    assert desk.read().startswith(header(1, 1, order=BIG))
    desk.log.full = False
    desk.send(keyed(2))
    desk.commit()
    assert desk.read() == done(2)
    assert len(desk.log.records) == 1


def test_frames_behind_a_message_wait_with_it_for_the_keys_of_earlier_runs() -> None:
    desk = joined()
    loader = Loader()
    desk.broker.deduplication.load = loader.load
    data = keyed(1) + push(2, b"t", b"w", order=BIG)
    taken = desk.link.handler.received(memoryview(data))
    assert (taken, desk.log.next_offset, desk.link.paused) == (len(keyed(1)), 0, True)
    loader.then([])
    assert not desk.link.paused
    desk.send(data[taken:])
    desk.commit()
    assert desk.read() == done(1) + done(2)
