"""What a selection takes of topics; that it prunes what is read is tested with the log."""

import pickle

import pyarrow as pa
import pytest

from penstock.ports.selection import Selection, TopicTest

TOPICS = ["a", "a/b", "", "c.d"]
"""Requests, replies, notices and broadcasts have the empty one."""


def taken(**given: object) -> list[str]:
    selection: Selection = pickle.loads(pickle.dumps(Selection(**given)))  # type: ignore[arg-type]  # noqa: S301
    batch = pa.RecordBatch.from_pydict({"topic": TOPICS})
    found: list[str] = selection.of(batch).column("topic").to_pylist()
    assert found == [name for name in TOPICS if selection.wanted(name)]
    return found


@pytest.mark.parametrize("everything", ["#", ">"])
def test_the_pattern_of_everything_takes_messages_without_a_topic(everything: str) -> None:
    assert taken() == TOPICS
    assert taken(patterns=(everything,)) == TOPICS
    assert taken(patterns=("a/+", everything), topics=frozenset({"x"})) == TOPICS
    assert not Selection(patterns=(everything,)).by_topic
    assert Selection(patterns=(everything,)).columns == set()


def test_other_patterns_take_no_message_without_a_topic() -> None:
    assert taken(patterns=("a/#",)) == ["a", "a/b"]
    assert taken(patterns=("+/+",)) == ["a/b", "c.d"]
    assert taken(topics=frozenset({"a"})) == ["a"]
    assert taken(patterns=("+",)) == ["a"]
    for expression in (".+", ".*"):
        assert taken(expression=expression) == ["a", "a/b", "c.d"]


def test_everything_is_still_narrowed_by_tests() -> None:
    narrowed = Selection(patterns=("#",), tests=(TopicTest("contains", "a"),))
    assert narrowed.by_topic
    assert taken(patterns=("#",), tests=(TopicTest("starts", "a"),)) == ["a", "a/b"]
