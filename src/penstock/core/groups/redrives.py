"""Redrives: dead letters whose messages are delivered to their group again.

A group delivers the messages themselves, which may be gone: retention removed them, or their topics
were deleted. So they are looked up first. Those that are gone stay dead letters.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.groups.group import Group
from penstock.core.groups.places import PlacedReader, offset_of, partition_of, place_of
from penstock.core.slices import Slices
from penstock.errors import (
    LogDamaged,
    LogError,
    NoSuchGroup,
    OffsetBelowHorizon,
    PenstockError,
)
from penstock.ports import Fetched, Stored

__all__ = ["Redriven", "Redrives"]

log = structlog.get_logger("penstock.groups")


class Redriven(NamedTuple):
    """Numbers of dead letters: messages delivered again, and those gone from the log."""

    messages: int
    gone: int


class _Search:
    """The dead letters of one group whose messages are being looked up."""

    def __init__(self, group: Group, then: Callable[[Redriven | Exception], None]) -> None:
        self.group = group
        self.then = then
        self.left = sorted(group.ledger.left_dead)
        self.found: list[int] = []
        self.gone = 0


class Redrives:
    """Looks up the messages of dead letters, and delivers those that are in the log again."""

    def __init__(self, *, reader: PlacedReader, topics: TopicTable, slices: Slices) -> None:
        self._reader = reader
        self._topics = topics
        self._slices = slices
        self._batch = Batch()

    def start(self, group: Group, then: Callable[[Redriven | Exception], None]) -> None:
        """Deliver the dead letters of a group again; call `then` with an error if that failed."""
        group.redrives += 1
        self._next(_Search(group, then))

    def _next(self, search: _Search) -> None:
        """Look up the first message that is left, and others that are read together with it."""
        group = search.group
        if group.is_removed:
            self._end(search, NoSuchGroup(group.name))
        elif not search.left:
            self._end(search, Redriven(group.ledger.redrive(search.found), search.gone))
        else:
            first = search.left[0]
            self._reader.fetch(first, lambda result: self._fetched(search, result), group.topics)

    def _end(self, search: _Search, result: Redriven | Exception) -> None:
        search.group.redrives -= 1
        search.then(result)

    def _fetched(self, search: _Search, result: Fetched | LogError) -> None:
        base = place_of(partition_of(search.left[0]), 0)
        match result:
            case Fetched():
                self._slices.add(self._look(search, result.groups, result.end))
            case OffsetBelowHorizon(horizon=end) | LogDamaged(resumes_at=end):
                self._slices.add(self._look(search, (), base + end))
            case _:
                self._end(search, result)

    def _look(self, search: _Search, groups: Sequence[Stored], end: int) -> Iterator[None]:
        """Look for the dead letters before `end` in row groups, then go on."""
        left = search.left
        there: list[int] = []
        for stored in groups:
            first = bisect_left(left, stored.base_offset)
            last = bisect_left(left, stored.base_offset + stored.count)
            if first < last:
                there += self._visible(stored, left[first:last])
                yield
        done = max(bisect_left(left, end), 1)
        search.found += there
        search.gone += done - len(there)
        search.left = left[done:]
        self._next(search)

    def _visible(self, stored: Stored, offsets: list[int]) -> list[int]:
        """Return the offsets of a row group whose messages can be delivered."""
        batch, topics, base = self._batch, self._topics, stored.base_offset
        try:
            stored.load(batch, topics)
            return [
                offset
                for offset in offsets
                if not batch.hidden(offset - base) and topics.is_live(batch.topic_id(offset - base))
            ]
        except (PenstockError, ValueError) as error:
            log.warning("dead letters not read", offset=offset_of(base), error=str(error))
            return []
        finally:
            batch.clear()
