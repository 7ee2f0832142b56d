"""A log to look at: while a broker writes it, after it was closed, after a crash.

A view is what recovery would make of the folder at the moment it was opened, and changes nothing
there: no lock is taken, nothing is repaired, an index that is missing is made in memory.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.compute as pc

from penstock.errors import CannotRead, LogDamaged, LogError, OffsetBelowHorizon
from penstock.limits import LOG_OPEN_TRIES_MAX
from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import (
    SEGMENT,
    STATE,
    base_offset_of,
    partition_folder,
    segment_path,
)
from penstock.storage.arrow.format.log_state import load_state
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.reader import read_group
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.recovery import Recovered, Segment, recover

__all__ = ["LogView", "SegmentView", "find_log"]

_NOT_OF_A_SEGMENT: Final = frozenset({Fault.BAD_STATE, Fault.BAD_JOURNAL, Fault.MISSING_SEGMENT})


class SegmentView(NamedTuple):
    """A segment as `penstock log ls` shows it. Times are microseconds since the epoch.

    `messages` are those that can be read; one that is not `sealed` is being written, or was when
    its broker died.
    """

    base_offset: int
    end_offset: int
    messages: int
    groups: int
    size: int
    first_us: int | None
    last_us: int | None
    sealed: bool
    damage: list[Damage]


def find_log(data: Path, *, partition: int = 0) -> Path:
    """Return the folder of a partition's log; raise CannotRead if there is none, or none to see."""
    folder = partition_folder(data, partition)
    try:
        names = os.listdir(folder)  # noqa: PTH208 - thousands of names, no use for paths
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            reason = f"it has no log/{partition}" if data.is_dir() else "there is no such folder"
        raise CannotRead(str(data), reason) from error
    segments = [name for name in names if base_offset_of(name, SEGMENT) is not None]
    if not segments and STATE not in names:
        raise CannotRead(str(data), f"there is nothing in log/{partition}")
    for name in segments:
        if not os.access(folder / name, os.R_OK) and (folder / name).exists():
            raise CannotRead(str(folder / name), "permission denied")
    return folder


class LogView:
    """A partition's log as it was when this was made. Any thread may use it.

    Raise CannotRead, LogFormatTooNew, or OSError.
    """

    def __init__(self, data: Path, *, partition: int = 0) -> None:
        self.folder = find_log(data, partition=partition)
        self.partition = partition
        self.files, recovered = self._look()
        self.log_id = recovered.state.log_id
        self.horizon = recovered.horizon
        """The first offset that is kept."""
        self.end = recovered.next_offset
        """The offset that the next message gets."""
        self.damage = recovered.damage
        """What is known to be wrong: what was closed is not read for it."""
        self.segments = recovered.segments
        self.catalog = Catalog(
            self.files, self.folder, self.segments, self.damage, horizon=self.horizon
        )

    def _look(self) -> tuple[Overlay, Recovered]:
        """Play recovery; start over where retention takes a segment away meanwhile."""
        for left in reversed(range(LOG_OPEN_TRIES_MAX)):
            files = Overlay()
            try:
                return files, recover(files, self.folder, partition=self.partition)
            except FileNotFoundError:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def gone(self, offset: int, error: FileNotFoundError) -> LogError:
        """Return what to raise for messages from `offset` on whose segment is not there any more.

        Retention goes on while a view is used.
        """
        state = load_state(Files(), self.folder)
        if state is not None and state.horizon > offset:
            return OffsetBelowHorizon(offset, state.horizon)
        return LogDamaged(offset, self.end, f"{error.filename} is not there any more")

    def is_sealed(self, segment: Segment) -> bool:
        """Tell whether a segment has its end marker and its index."""
        return not self.files.changed(segment_path(self.folder, segment.base_offset))

    def describe(self, segment: Segment) -> SegmentView:
        """Return what there is to say of a segment; raise FileNotFoundError if it is gone."""
        index = self.catalog.index(segment)
        counts = index.table().column("count")
        return SegmentView(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            messages=pc.sum(counts).as_py() or 0,
            groups=len(index),
            size=segment.size,
            first_us=index.first_us,
            last_us=index.last_us,
            sealed=self.is_sealed(segment),
            damage=[
                each
                for each in self.damage
                if each.segment == segment.base_offset and each.fault not in _NOT_OF_A_SEGMENT
            ],
        )

    def find_time(self, timestamp_us: int) -> int:
        """Return the first offset that was taken at or after a time, or the end.

        Raise LogError if the messages of that time cannot be read.
        """
        try:
            place = self.catalog.place_of_time(timestamp_us)
        except FileNotFoundError as error:
            raise self.gone(self.horizon, error) from error
        if place is None:
            return self.end
        found = read_group(self.files, place)
        return min(found.base_offset + found.row_at_time(timestamp_us), self.end)
