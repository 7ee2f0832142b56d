"""The topic table interns names once and lets in only what can be published to."""

import threading

import pytest

from penstock._kernels import rheos1
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.errors import InvalidTopicName, TopicTableFull
from penstock.protocols.rheos1 import RHEOS1
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


@pytest.mark.parametrize("name", ["", "+", "a/+", "a.*.b", "#", "a/#", ">", "x.>", "t" * 65_527])
def test_what_cannot_be_published_to_is_refused(name: str) -> None:
    topics = TopicTable()
    with pytest.raises(InvalidTopicName):
        topics.intern(name)
    assert len(topics) == 0


def test_the_longest_name_is_taken() -> None:
    topics = TopicTable()
    assert topics.name(topics.intern("é" * (65_526 // 2))) == "é" * (65_526 // 2)


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
