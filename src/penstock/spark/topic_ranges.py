"""Offsets by topic: the sections of a range in which different topics are read.

All topics share the offsets of a partition. If the topics of a read start or end at different
offsets, its range is divided where one of them does. Each section has a selection of its own.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from penstock.ports import Matched
from penstock.ports.selection import Selection
from penstock.spark.joining import Outside
from penstock.spark.log_source import LogSource, Range, ReadRequest, Task

__all__ = [
    "Section",
    "SelectedTask",
    "TopicOffsets",
    "match_sections",
    "parse_starts",
    "sections",
    "starts_ahead",
    "starts_text",
]

_NO_TOPICS: Final[Mapping[str, int]] = MappingProxyType({})


class TopicOffsets(NamedTuple):
    """An offset for each of `topics`, and one for all other topics of a partition."""

    others: int
    topics: Mapping[str, int] = _NO_TOPICS

    def of(self, topic: str) -> int:
        """Return the offset of a topic."""
        return self.topics.get(topic, self.others)

    @property
    def lowest(self) -> int:
        """The lowest offset of any topic."""
        return min((self.others, *self.topics.values()))

    @property
    def highest(self) -> int:
        """The highest offset of any topic."""
        return max((self.others, *self.topics.values()))


class Section(NamedTuple):
    """A range, and the messages of it to read."""

    span: Range
    selection: Selection


def sections(
    span: Range, selection: Selection, starts: TopicOffsets, ends: TopicOffsets
) -> list[Section]:
    """Divide a range where topics start and end; leave out sections in which none is read."""
    names = starts.topics.keys() | ends.topics.keys()
    offsets = {starts.others, ends.others, *starts.topics.values(), *ends.topics.values()}
    inner = {each for each in offsets if span.start < each < span.end}
    found: list[Section] = []
    for first, last in itertools.pairwise(sorted({span.start, span.end} | inner)):
        inactive = frozenset(
            name for name in names if not starts.of(name) <= first < last <= ends.of(name)
        )
        others = starts.others <= first < last <= ends.others
        narrowed = _narrowed(selection, names - inactive, inactive, others=others)
        if narrowed is None:
            continue
        if found and found[-1].selection == narrowed and found[-1].span.end == first:
            found[-1] = Section(found[-1].span._replace(end=last), narrowed)
        else:
            found.append(Section(span._replace(start=first, end=last), narrowed))
    return found


def _narrowed(
    selection: Selection, active: set[str], inactive: frozenset[str], *, others: bool
) -> Selection | None:
    """Return a selection without the topics that are not read, None if none is."""
    if not inactive and others:
        return selection
    if selection.is_by_name:
        names = selection.topics or frozenset()
        kept = names - inactive if others else names & active
        return dataclasses.replace(selection, topics=kept) if kept else None
    if not others:
        return Selection(topics=frozenset(active)) if active else None
    outside = Outside(subscription=Selection(topics=inactive))
    return dataclasses.replace(selection, tests=(*selection.tests, outside))


def match_sections(
    source: LogSource, parts: list[Section], start: int, *, rows_max: int | None
) -> Matched:
    """Count the records of sections as LogSource.match does; `start` is that of the range."""
    found = Matched(start, 0, start)
    for span, selection in parts:
        left = None if rows_max is None else rows_max - found.rows
        if left == 0:
            break
        more = source.match(span, selection, rows_max=left)
        if more.rows:
            first = found.first if found.rows else max(more.first, span.start)
            found = Matched(more.end, found.rows + more.rows, first)
    return found


class SelectedTask(Task):
    """A task of messages that a selection of its own selects."""

    def __init__(self, task: Task, selection: Selection) -> None:
        super().__init__(None)
        self.task = task
        self.selection = selection

    @property
    def rows_max(self) -> int:
        """See Task."""
        return self.task.rows_max

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """See Task."""
        narrowed = dataclasses.replace(request, selection=self.selection)
        for batch in self.task.batches(narrowed):
            yield self.selection.of(batch)


class _StoredOffsets(msgspec.Struct, frozen=True):
    others: int
    topics: dict[str, int]


def starts_text(starts: Mapping[int, TopicOffsets], positions: Mapping[int, int]) -> str:
    """Return the offsets of topics as text, for partitions where some start after a position.

    Equal offsets become equal text. It is empty if all topics have started.
    """
    ahead = {
        str(number): _StoredOffsets(each.others, dict(sorted(each.topics.items())))
        for number, each in sorted(starts.items())
        if number in positions and each.highest > positions[number]
    }
    return msgspec.json.encode(ahead).decode() if ahead else ""


def parse_starts(text: str) -> dict[int, TopicOffsets]:
    """Return the offsets of topics from text, by partition."""
    if not text:
        return {}
    stored = msgspec.json.decode(text, type=dict[int, _StoredOffsets])
    return {number: TopicOffsets(each.others, each.topics) for number, each in stored.items()}


def starts_ahead(text: str, positions: Mapping[int, int]) -> dict[int, TopicOffsets]:
    """Return the offsets of topics from text, for partitions where some start after a position."""
    return {
        number: each
        for number, each in parse_starts(text).items()
        if number in positions and each.highest > positions[number]
    }
