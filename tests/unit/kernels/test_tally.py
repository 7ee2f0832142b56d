"""What came for each topic, counted by the kernel as a plain loop counts it."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._kernels import herald
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.tally import busiest, tally
from penstock._kernels.topics import TopicTable
from tests.support.herald_bytes import publish

SENDER = Sender(bytes(16), 1000)


def scanned(rows: list[tuple[int, bytes]], topics: TopicTable) -> Batch:
    batch = Batch()
    data = b"".join(publish(channel, value) for channel, value in rows)
    end = herald.scan(data, 0, batch, topics, SENDER, order="little")
    assert end == len(data)
    return batch


def table() -> TopicTable:
    topics = TopicTable()
    for channel in range(8):
        topics.bind_channel(channel, f"channel/{channel}")
    return topics


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=9)), min_size=1, max_size=40),
        max_size=5,
    ),
    st.integers(0, 8),
)
def test_it_counts_as_a_plain_loop_does(batches: list[list[tuple[int, bytes]]], known: int) -> None:
    topics = table()
    counts = array("Q", bytes(32 * known))
    expected = [[0, 0, 0, 0] for _ in range(known)]
    offset = 100
    for number, rows in enumerate(batches):
        batch = scanned(rows, topics)
        batch.timestamp_us = 1_000_000 + number
        tally(batch, counts, offset)
        for row, (channel, value) in enumerate(rows):
            topic = topics.channel_topic(channel)
            assert topic is not None
            if topic < known:  # others have no place
                messages, size, _, _ = expected[topic]
                expected[topic] = [
                    messages + 1, size + len(value), offset + row, 1_000_000 + number,
                ]  # fmt: skip
        offset += len(rows)
        batch.clear()
    assert counts.tolist() == [number for entry in expected for number in entry]


@given(
    st.lists(st.integers(0, 20), max_size=30),
    st.lists(st.integers(0, 20), max_size=30),
    st.integers(1, 10),
)
def test_the_busiest_grew_the_most(first: list[int], grown: list[int], most: int) -> None:
    before = array("Q", [n for messages in first for n in (messages, 0, 0, 0)])
    totals = [
        (first[topic] if topic < len(first) else 0) + more for topic, more in enumerate(grown)
    ]
    now = array("Q", [n for messages in totals for n in (messages, 9, 9, 9)])
    found = busiest(before, now, most)
    assert [grown[topic] for topic in found] == sorted(filter(None, grown), reverse=True)[:most]
    assert len(set(found)) == len(found)


def test_there_is_no_busiest_of_none() -> None:
    assert busiest(array("Q"), array("Q"), 3) == []
    with pytest.raises(ValueError, match="at least one"):
        busiest(array("Q"), array("Q"), 0)
