"""The state of a consumer group at one moment, encoded in steps.

A group may have tens of thousands of messages that are not contiguous. Encoding them takes longer
than a turn of the event loop, so it is done in steps, from a copy: without the copy, a message
whose state changes between two steps could be left out.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.limits import GROUP_PIECE_ROWS_MAX
from penstock.ports import GroupProgress, PendingRun
from penstock.ports.places import offset_of, partition_of

__all__ = ["LeasedRows", "Snapshot"]


class LeasedRows(NamedTuple):
    """Messages that are leased to a member: rows relative to a base offset, in order."""

    base: int
    rows: "array[int]"
    done: bytes | None
    """A flag for each row that is done; None if none is."""
    failures: int


class Snapshot:
    """A copy of the unacknowledged messages of a group.

    `offsets` maps offsets of messages that are not leased to the numbers of their failures.
    """

    def __init__(
        self,
        *,
        nexts: Mapping[int, int],
        leased: list[LeasedRows],
        offsets: list[Mapping[int, int]],
        dead: tuple[int, ...],
    ) -> None:
        self._nexts = nexts
        self.positions = dict(nexts)
        """The first offset of each partition that is not done. Complete after `build`."""
        self._leased = leased
        self._offsets = offsets
        self._dead = dead
        self._pending: list[PendingRun] = []

    def build(self) -> Iterator[None]:
        """Find the runs of messages; yield between steps, not for a few messages."""
        count = 0
        for each in self._leased:
            self._add(_leased_runs(each))
            count += len(each.rows)
            if count >= GROUP_PIECE_ROWS_MAX:
                count = 0
                yield
        for offsets in self._offsets:
            ordered = sorted(offsets)
            for first in range(0, len(ordered), GROUP_PIECE_ROWS_MAX):
                if first:
                    yield
                piece = ordered[first : first + GROUP_PIECE_ROWS_MAX]
                self._add(_runs((offset, offsets[offset]) for offset in piece))

    def _add(self, runs: list[PendingRun]) -> None:
        """Add runs that are in order."""
        self._pending += runs
        is_of_one = partition_of(runs[0].first) == partition_of(runs[-1].first)
        for run in runs[:1] if is_of_one else runs:
            number, offset = partition_of(run.first), offset_of(run.first)
            self.positions[number] = min(offset, self.positions.get(number, offset))

    def progress(self, *, is_ordered: bool, is_used: bool) -> GroupProgress:
        """Return the state that is stored, after `build`.

        `is_used` tells whether the group has members.
        """
        nexts = dict(self._nexts)
        return GroupProgress(
            next=nexts.get(0, 0),
            pending=tuple(self._pending),
            dead=self._dead,
            ordered=is_ordered,
            partitions={} if nexts.keys() == {0} else nexts,
            used=is_used,
        )


def _leased_runs(leased: LeasedRows) -> list[PendingRun]:
    base, rows, done, failures = leased
    if done is None:
        if rows[-1] - rows[0] + 1 == len(rows):
            return [PendingRun(base + rows[0], len(rows), failures)]
        return _runs((base + row, failures) for row in rows)
    return _runs(
        (base + row, failures) for row, is_done in zip(rows, done, strict=True) if not is_done
    )


def _runs(pairs: Iterable[tuple[int, int]]) -> list[PendingRun]:
    """Return offsets with their failures, in order, as runs without gaps."""
    runs: list[PendingRun] = []
    first = end = run_failures = -1
    for offset, failures in pairs:
        if offset == end and failures == run_failures:
            end += 1
            continue
        if end >= 0:
            runs.append(PendingRun(first, end - first, run_failures))
        first, end, run_failures = offset, offset + 1, failures
    if end >= 0:
        runs.append(PendingRun(first, end - first, run_failures))
    return runs
