"""The last message of each topic is found by the indexes of segments, without reading all of it."""

from pathlib import Path

import pytest

from penstock._kernels.topics import TopicTable
from penstock.limits import INDEX_TOPICS_MAX
from penstock.model import Kind
from penstock.ports import LastFound
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.last_offsets import LastOffsets
from tests.support.written_log import WrittenLog, message


def search(data: Path, *names: str) -> tuple[dict[str, int], int]:
    """Return the last offset of each topic, and the number of row groups that were read."""
    view = LogView(data)
    topics = TopicTable()
    for name in names:
        topics.intern(name)
    found = LastOffsets(view.catalog, topics, view.end)
    return dict(zip(names, found.find(), strict=True)), found.row_groups_read


@pytest.mark.parametrize("segment_bytes_max", [1, 1 << 28])
def test_the_last_offset_of_each_topic_is_found_and_other_row_groups_are_not_read(
    tmp_path: Path, segment_bytes_max: int
) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=segment_bytes_max) as written:
        written.put(message("rare", b"1"))
        written.put_many(20, rows=3, topics=["a", "b", "c"])
        written.put(message("once", b"1"))
        written.put_many(20, rows=2, topics=["a", "b"])
    last, row_groups = search(tmp_path, "rare", "a", "b", "c", "once")
    assert last == {"rare": 0, "a": 100, "b": 101, "c": 59, "once": 61}
    assert row_groups == 4


def test_a_search_goes_on_at_the_end_of_an_earlier_one(tmp_path: Path) -> None:
    topics = TopicTable()
    for name in ("a", "b", "c"):
        topics.intern(name)
    with WrittenLog(tmp_path, segment_bytes_max=1) as written:
        written.put_many(10, rows=2)
        view = LogView(tmp_path)
        known = LastFound(LastOffsets(view.catalog, topics, view.end).find(), view.end)
        written.put(message("b", b"1"), message("c", b"1", private=True))
        written.put(message("new", b"1"))
    topics.intern("new")
    view = LogView(tmp_path)
    found = LastOffsets(view.catalog, topics, view.end, known)
    assert list(found.find()) == [18, 20, -1, 22]
    assert found.row_groups_read == 2
    assert list(known.offsets) == [18, 19, -1], "the earlier result is another array"


def test_topics_without_a_message_have_no_offset(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put_many(2)
    assert search(tmp_path, "a", "none")[0] == {"a": 4, "none": -1}


def test_requests_and_private_messages_are_not_the_last_ones(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as written:
        written.put(message("a", b"1"))
        written.put(message("a", b"2", kind=Kind.REQUEST))
        written.put(message("a", b"3", private=True), message("b", b"4"))
    assert search(tmp_path, "a", "b")[0] == {"a": 0, "b": 3}


def test_row_groups_with_more_topics_than_the_index_lists_are_searched(tmp_path: Path) -> None:
    names = [f"t/{n}" for n in range(INDEX_TOPICS_MAX + 1)]
    with WrittenLog(tmp_path) as written:
        written.put(*(message(name, b"1") for name in names))
        written.put(message("t/5", b"2"))
    last, row_groups = search(tmp_path, *names)
    assert last == {name: n for n, name in enumerate(names)} | {"t/5": len(names)}
    assert row_groups == 2
