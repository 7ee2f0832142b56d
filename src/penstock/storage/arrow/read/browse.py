"""A snapshot of a log folder: while a broker writes it, after it was closed, after a crash.

A view is the result that recovery would have at its creation. It changes nothing: no lock is taken,
nothing is repaired, and a missing index is built in memory.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.compute as pc

from penstock.errors import CannotRead, LogDamaged, LogError, OffsetBelowHorizon
from penstock.limits import LOG_OPEN_TRIES_MAX
from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import (
    SEGMENT,
    STATE,
    base_offset_of,
    partition_folder,
    segment_path,
)
from penstock.storage.arrow.format.log_state import load_state
from penstock.storage.arrow.format.topic_horizons import known_horizons
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.reader import offset_at_time
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.recovery import Recovered, Segment, recover
from penstock.storage.files import Files

__all__ = ["LogView", "SegmentView", "find_log"]

_NOT_OF_A_SEGMENT: Final = frozenset({Fault.BAD_STATE, Fault.BAD_JOURNAL, Fault.MISSING_SEGMENT})


class SegmentView(NamedTuple):
    """A segment as `penstock log ls` shows it. Times are microseconds since the epoch.

    `messages` counts the readable ones. A segment that is not `sealed` is being written, or was
    when its broker stopped.
    """

    base_offset: int
    end_offset: int
    messages: int
    row_groups: int
    size: int
    first_us: int | None
    last_us: int | None
    sealed: bool
    damage: list[Damage]


def find_log(data: Path, *, partition: int = 0) -> Path:
    """Return the folder of a partition's log; raise CannotRead if it is missing or unreadable."""
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


def _inodes(folder: Path) -> dict[str, int]:
    """Return the inode of each segment file; a replaced file has another inode."""
    with os.scandir(folder) as found:
        return {each.name: each.inode() for each in found if each.name.endswith(SEGMENT)}


class LogView:
    """A snapshot of a partition. Any thread may use it.

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
        """The offset of the next message."""
        self.damage = recovered.damage
        """The recorded damage; closed segments are not read to find more."""
        self.segments = recovered.segments
        self.catalog = Catalog(
            self.files,
            self.folder,
            self.segments,
            self.damage,
            horizon=self.horizon,
            horizons=known_horizons(self.files, self.folder),
        )

    def _look(self) -> tuple[Overlay, Recovered]:
        """Run recovery in memory; start over if a segment is removed or replaced meanwhile."""
        for left in reversed(range(LOG_OPEN_TRIES_MAX)):
            files = Overlay()
            before = _inodes(self.folder)
            try:
                found = recover(files, self.folder, partition=self.partition)
            except FileNotFoundError:
                if not left:
                    raise
                continue
            after = _inodes(self.folder)
            if not left or all(after.get(name, inode) == inode for name, inode in before.items()):
                return files, found
        raise AssertionError("the last try returns or raises")

    def missing_segment(self, offset: int, error: FileNotFoundError) -> LogError:
        """Return the error for messages from `offset` on whose segment is missing.

        Retention may run while a view is used.
        """
        state = load_state(Files(), self.folder)
        if state is not None and state.horizon > offset:
            return OffsetBelowHorizon(offset, state.horizon)
        return LogDamaged(offset, self.end, f"{error.filename} is not there any more")

    def is_sealed(self, segment: Segment) -> bool:
        """Return whether a segment has its end marker and its index."""
        return not self.files.changed(segment_path(self.folder, segment.base_offset))

    def describe(self, segment: Segment) -> SegmentView:
        """Describe a segment; raise FileNotFoundError if it is missing."""
        index = self.catalog.index(segment)
        counts = index.table().column("count")
        return SegmentView(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            messages=pc.sum(counts).as_py() or 0,
            row_groups=len(index),
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
        """Return the first offset taken at or after a time, or the end.

        Raise LogError if the messages of that time cannot be read.
        """
        try:
            return offset_at_time(self.files, self.catalog, timestamp_us, self.end)
        except FileNotFoundError as error:
            raise self.missing_segment(self.horizon, error) from error
