"""The topic table interns names once and lets in only what can be published to."""

import random
import threading

import pytest

from penstock._kernels import lamamq, rheos1
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.errors import InvalidTopicName, TopicTableFull
from penstock.protocols.rheos1 import RHEOS1
from tests.support import lamamq_bytes as lama
from tests.support.publishes import publish


def test_a_name_keeps_its_number() -> None:
    topics = TopicTable()
    names = [f"sensors/{n}/temp" for n in range(5000)]
    numbers = [topics.intern(name) for name in names]
    assert numbers == list(range(5000))
    assert [topics.intern(name) for name in names] == numbers
    assert [topics.find(name) for name in names] == numbers
    assert [topics.name(number) for number in numbers] == names
    assert len(topics) == topics.count == 5000
    assert topics.find("sensors") is None
    with pytest.raises(IndexError):
        topics.name(5000)


def test_names_that_differ_late_or_early_are_told_apart() -> None:
    topics = TopicTable()
    names = ["a" * n for n in range(1, 40)] + ["b" + "a" * n for n in range(40)]
    assert len({topics.intern(name) for name in names}) == len(names)


def test_long_names_that_begin_alike_are_told_apart() -> None:
    topics = TopicTable()
    names = ["a" * n + end for n in range(40, 60) for end in ("", "b", "c", "b" * 20)]
    numbers = {name: topics.intern(name) for name in names}
    assert len(set(numbers.values())) == len(numbers)
    assert {name: topics.find(name) for name in names} == numbers
    assert topics.find("a" * 60) is None


@pytest.mark.parametrize("longest", [20, 90])
def test_a_scan_finds_every_topic_of_a_large_table_in_any_order(longest: int) -> None:
    """Frames of one size are looked at ahead, others are not; topics were removed in between."""
    choose = random.Random(longest)
    topics = TopicTable()
    names = [f"{number:05}".ljust(choose.randint(20, longest), "x") for number in range(40_000)]
    for name in names:
        topics.intern(name)
    removed = set(choose.sample(names, 10_000))
    for name in removed:
        topics.remove(topics.intern(name))
    again = choose.sample(sorted(removed), 5_000)  # they get the memory of removed ones
    numbers = {name: topics.intern(name) for name in again}
    numbers |= {name: topics.intern(name) for name in names if name not in removed}
    order = choose.sample(sorted(numbers), len(numbers))
    data = b"".join(publish(RHEOS1, "little", topic=name) for name in order)
    batch, found, start = Batch(), [], 0
    while start < len(data):
        start = rheos1.scan(data, start, batch, topics, Sender(bytes(16), 1), learn_topics=False)
        assert len(batch)
        found += [batch.topic_id(row) for row in range(len(batch))]
    assert found == [numbers[name] for name in order]
    gone = next(name for name in names if name in removed and name not in numbers)
    assert not rheos1.scan(
        publish(RHEOS1, "little", topic=gone),
        0,
        batch,
        topics,
        Sender(bytes(16), 1),
        learn_topics=False,
    )


@pytest.mark.parametrize("name", ["", "+", "a/+", "a.*.b", "#", "a/#", ">", "x.>", "t" * 65_536])
def test_what_cannot_be_published_to_is_refused(name: str) -> None:
    topics = TopicTable()
    with pytest.raises(InvalidTopicName):
        topics.intern(name)
    assert len(topics) == 0


def test_the_longest_name_is_taken() -> None:
    topics = TopicTable()
    for name in ("é" * (65_535 // 2), "t" * 65_535):
        assert topics.name(topics.intern(name)) == name


@pytest.mark.parametrize("name", ["a@earliest", "a@#7", "a@-15m", "a@ealiest", "ü@earliest"])
def test_a_name_that_ends_in_a_start_position_is_not_scanned(name: str) -> None:
    """Logs of earlier versions have such names: they are found, but take no messages."""
    topics, batch, sender = TopicTable(), Batch(), Sender(bytes(16), 1000)
    push = lama.push(1, name.encode(), b"x")
    for _ in range(2):
        assert lamamq.scan(push, 0, batch, topics, sender, order="big") == 0
        number = topics.intern_stored(name)
        assert number is not None
    assert (topics.find(name), topics.find_binary(name.encode())) == (number, number)
    topics.remove(number)
    assert (topics.find(name), topics.find_binary(name.encode())) == (None, None)
    assert topics.intern(name) == number + 1


def test_a_topic_has_a_parent_until_it_is_removed() -> None:
    topics = TopicTable()
    number = topics.intern("a")
    assert topics.parent(number) == b""
    for parent in (bytes(16), b"\xff" * 16, b""):
        topics.set_parent(number, parent)
        assert topics.parent(number) == parent
    with pytest.raises(ValueError, match="15 bytes"):
        topics.set_parent(number, bytes(15))
    topics.set_parent(number, bytes(16))
    topics.remove(number)
    for unknown in (number, number + 1):
        with pytest.raises(IndexError):
            topics.parent(unknown)
        with pytest.raises(IndexError):
            topics.set_parent(unknown, bytes(16))
    assert topics.parent(topics.intern("a")) == b""


def test_a_full_table_says_so_and_still_finds_what_it_has() -> None:
    topics = TopicTable(capacity=2)
    topics.intern("a")
    topics.intern("b")
    with pytest.raises(TopicTableFull):
        topics.intern("c")
    assert topics.intern("b") == 1
    with pytest.raises(ValueError, match="capacity"):
        TopicTable(capacity=0)
    with pytest.raises(ValueError, match="capacity"):
        TopicTable(capacity=1_048_577)


def test_binary_names_and_canonical_names_meet_in_one_topic() -> None:
    topics = TopicTable()
    raw = topics.intern_binary(b"a\xff")
    assert topics.name(raw) == "a%FF"
    assert topics.find("a%FF") == topics.find_binary(b"a\xff") == raw
    assert topics.find_binary(b"a%FF") is None
    literal = topics.intern_binary(b"a%FF")
    assert topics.name(literal) == "a%25FF"
    assert topics.intern("plain") == topics.intern_binary(b"plain")


def test_a_name_rheos_cannot_address_takes_no_binary_name_from_another() -> None:
    topics = TopicTable()
    unaddressable = topics.intern("%C3%A9")  # needs no escape: its bytes are UTF-8
    assert topics.find_binary(b"%C3%A9") is None
    literal = topics.intern_binary(b"%C3%A9")
    assert literal != unaddressable
    assert topics.name(literal) == "%25C3%25A9"


def test_channels_are_bound_once() -> None:
    topics = TopicTable()
    assert topics.channel_topic(3) is None
    number = topics.bind_channel(3, "alarms")
    assert topics.channel_topic(3) == number == topics.find("alarms")
    with pytest.raises(ValueError, match="bound already"):
        topics.bind_channel(3, "others")
    with pytest.raises(ValueError, match="bound already"):
        topics.bind_channel(4, "alarms")
    with pytest.raises(OverflowError):
        topics.bind_channel(256, "beyond")


def test_a_scan_looks_names_up_while_another_thread_adds_some() -> None:
    topics = TopicTable()
    names = [f"t/{n}" for n in range(64)]
    stream = b"".join(publish(RHEOS1, "little", topic=name) for name in names) * 40
    failures: list[str] = []
    done = threading.Event()

    def scan() -> None:
        batch, sender = Batch(), Sender(bytes(16), 1)
        while not done.is_set():
            end = rheos1.scan(stream, 0, batch, topics, sender)
            found = [topics.name(batch.topic_id(row)) for row in (0, 63, 64, 2559)]
            if end != len(stream) or found != ["t/0", "t/63", "t/0", "t/63"]:
                failures.append(f"{end} {found}")

    threads = [threading.Thread(target=scan) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(20_000):
        topics.intern(f"added/{n}")
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(topics) == 20_064


# --- Limits ---------------------------------------------------------------------------------------


def full(topics: TopicTable, name: str) -> str:
    """The limit that keeps a name out."""
    before = (len(topics), topics.live, topics.name_bytes)
    with pytest.raises(TopicTableFull) as raised:
        topics.intern(name)
    assert (len(topics), topics.live, topics.name_bytes) == before
    assert topics.find(name) is None
    return raised.value.limit


def test_the_bytes_of_names_are_bounded() -> None:
    topics = TopicTable(name_bytes_max=10)
    topics.intern("é" * 3)
    assert topics.name_bytes == 6
    assert full(topics, "12345") == "broker.topic_names_bytes_max"
    topics.intern("1234")
    assert full(topics, "x") == "broker.topic_names_bytes_max"
    assert topics.intern("1234") == 1


def test_one_owner_has_a_share_of_topics_and_of_bytes() -> None:
    topics = TopicTable(owner_topics_max=2, owner_name_bytes_max=8)
    topics.charge_to("mallory")
    topics.intern("m1")
    topics.intern("m2")
    assert full(topics, "m3") == "broker.topics_per_principal_max"
    assert topics.share_of("mallory") == (2, 4)
    topics.charge_to("alice")
    assert full(topics, "123456789") == "broker.topic_names_bytes_per_principal_max"
    topics.intern("12345678")
    assert topics.intern("m1") == 0  # of mallory still
    assert (topics.owner_of("m1"), topics.owner_of("12345678")) == ("mallory", "alice")
    topics.charge_to("")
    for number in range(10):
        topics.intern(f"broker/{number}")
    assert topics.share_of("") == topics.share_of("nobody") == (0, 0)


def test_topics_of_an_earlier_run_come_back_beyond_the_share_of_their_owner() -> None:
    topics = TopicTable(owner_topics_max=1)
    assert [topics.restore(name, "alice") for name in "abb"] == [0, 1, 1]
    assert topics.share_of("alice") == (2, 2)
    topics.charge_to("alice")
    assert full(topics, "c") == "broker.topics_per_principal_max"


# --- Removal --------------------------------------------------------------------------------------


def test_a_removed_topic_frees_its_name_and_its_share_but_not_its_number() -> None:
    topics = TopicTable(capacity=2, name_bytes_max=4, owner_topics_max=1)
    topics.charge_to("alice")
    assert topics.intern("a%41") == 0
    assert full(topics, "b") == "broker.topic_names_bytes_max"
    topics.remove(0)
    assert (len(topics), topics.live, topics.removals, topics.name_bytes) == (1, 0, 1, 0)
    assert topics.share_of("alice") == (0, 0)
    assert not topics.is_live(0)
    assert topics.find("a%41") is topics.find_binary(b"aA") is None
    for call in (topics.name, topics.remove):
        with pytest.raises(IndexError):
            call(0)
    assert topics.intern("a%41") == 1
    assert topics.is_live(1)


def test_a_removed_topic_is_not_created_by_its_history() -> None:
    topics = TopicTable()
    topics.remove(topics.intern("gone"))
    topics.mark_removed("long/gone")
    assert topics.intern_stored("gone") is topics.intern_stored("long/gone") is None
    assert topics.intern_stored("other") == 1
    assert topics.intern("gone") == topics.intern_stored("gone") == 2
    topics.mark_removed("other")
    assert topics.intern_stored("other") == 1


def test_the_topic_of_a_channel_stays() -> None:
    topics = TopicTable()
    topics.bind_channel(7, "alarms")
    assert topics.has_channel(0)
    with pytest.raises(ValueError, match="channel"):
        topics.remove(0)
    assert topics.find("alarms") == 0


def test_a_table_whose_topics_come_and_go_finds_those_that_are_there() -> None:
    topics = TopicTable(capacity=300)
    expected: dict[str, int] = {}
    choose = random.Random(7)
    for turn in range(20_000):
        name = f"t/{choose.randrange(400)}"
        if name in expected and choose.random() < 0.6:
            topics.remove(expected.pop(name))
        elif len(expected) < 300:
            expected[name] = topics.intern(name)
        if turn % 500 == 0:
            for number in range(400):
                known = expected.get(f"t/{number}")
                assert topics.find(f"t/{number}") == known
                assert topics.find_binary(b"t/%d" % number) == known
    assert topics.live == len(expected)
    assert topics.name_bytes == sum(map(len, expected))
