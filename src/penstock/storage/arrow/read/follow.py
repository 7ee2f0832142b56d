"""Follows a log that a broker writes, from another process: no lock, no changes, no waiting.

Closed segments are known by their indexes. The active one is scanned, each time only its new part.
Readable messages end at the watermark (`watermark.py`), or where a later row group says that all
before it is on disk. So the same range always gives the same messages, through new segments,
retention, crashes and restarts of the broker.

Without a broker it is the same: after a clean stop all segments are closed and readable; after a
crash the end of the last one is readable when a broker has started again and closed it.
"""

import contextlib
import errno
import itertools
import os
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from penstock.errors import CannotRead, LogDamaged, LogError, OffsetBelowHorizon
from penstock.limits import LOG_OPEN_TRIES_MAX
from penstock.ports import Bounds
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.damage import Damage, Fault, load_damage
from penstock.storage.arrow.format.file_names import (
    DAMAGE,
    HORIZONS,
    SEGMENT,
    base_offset_of,
    partition_folder,
    segment_bases,
    segment_path,
)
from penstock.storage.arrow.format.heads import read_head
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, load_summary
from penstock.storage.arrow.format.log_state import BadState, LogState, load_state
from penstock.storage.arrow.format.removed_topics import RemovedTopics, load_removed
from penstock.storage.arrow.format.topic_horizons import known_horizons
from penstock.storage.arrow.read.browse import find_log
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.reader import offset_at_time
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.recover.survey import survey
from penstock.storage.arrow.recover.walk import Bad, End, Good, walk
from penstock.storage.arrow.write.watermark import read_watermark

__all__ = ["LogFollower", "partitions_of"]

_SETTLED_NS: Final = 2_000_000_000
"""A folder that changed more recently is listed again: file system clocks are coarse."""


def partitions_of(data: Path) -> list[int]:
    """Return the partitions whose logs are in a data folder; raise CannotRead if there is none."""
    try:
        names = os.listdir(partition_folder(data, 0).parent)  # noqa: PTH208 - names are enough
    except OSError as error:
        reason = "it has no log" if data.is_dir() else "there is no such folder"
        raise CannotRead(str(data), reason) from error
    found = sorted(int(name) for name in names if name.isascii() and name.isdigit())
    if not found:
        raise CannotRead(str(data), "there is nothing in log")
    return found


class _ScannedSegment:
    """A segment without a valid index, as far as it was scanned; a `catalog.Growing`.

    Its row groups say that all messages below `claim` are on disk.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.index = Index(base_offset)
        self.size = 0
        self.claim = base_offset
        self.damage: list[Damage] = []
        self.last_crc: int | None = None
        self.sealed = False
        self.head_read = False
        self.seen = (-1, -1)
        self.inode = -1

    @property
    def end_offset(self) -> int:
        """One past the last offset found."""
        return self.index.end_offset


class LogFollower:
    """Follows one partition. Any thread may use it; `refresh` looks for new messages.

    `catalog`, `files`, `horizon`, `end`, `damage` and `missing_segment` are as those of a
    `browse.LogView`. Raise CannotRead, LogFormatTooNew, or OSError.
    """

    def __init__(self, data: Path, *, partition: int = 0) -> None:
        self.folder = find_log(data, partition=partition)
        self.partition = partition
        self.files = Overlay()  # a missing index is built in memory
        self.log_id: int | None = None
        self.horizon = 0
        self.end = 0
        self.catalog = Catalog(self.files, self.folder, [], horizon=0)
        self._lock = threading.Lock()
        self._listed_ns = -1
        self._closed: dict[int, Segment] = {}
        self._known_damage: dict[int, list[Damage]] = {}
        # Segments that were abandoned, as the next heads say.
        self._left: dict[int, _ScannedSegment] = {}
        self._active: _ScannedSegment | None = None
        self._floor = 0
        self.refresh()

    @property
    def damage(self) -> list[Damage]:
        """The known damage."""
        return self.catalog.damage

    def bounds(self) -> Bounds:
        """Refresh, and return the readable offsets."""
        return self.refresh()

    def refresh(self) -> Bounds:
        """Look for new messages; return the readable offsets."""
        with self._lock:
            for left in reversed(range(LOG_OPEN_TRIES_MAX)):
                try:
                    self._refresh()
                    break
                except FileNotFoundError as error:  # retention may run meanwhile
                    self._listed_ns, self._active = -1, None
                    if not left:
                        raise CannotRead(str(self.folder), str(error)) from error
            return Bounds(self.horizon, self.end)

    def _refresh(self) -> None:
        safe = read_watermark(self.folder)  # first: everything below it is written
        changed_ns = self.folder.stat().st_mtime_ns
        if changed_ns != self._listed_ns or abs(time.time_ns() - changed_ns) < _SETTLED_NS:
            self._list(changed_ns)
        active = self._active
        if active is not None:
            self._advance(active, safe)
            if active.sealed:  # the next one exists, or its index will
                self._list(self.folder.stat().st_mtime_ns)
                if self._active is not None and self._active is not active:
                    self._advance(self._active, safe)
        self._set_bounds(safe)

    def _set_bounds(self, safe: int | None) -> None:
        """Set the readable offsets from the segments found."""
        active = self._active
        end = self._floor
        if active is not None:
            shown = active.end_offset
            if not active.sealed:
                shown = min(shown, max(safe or 0, active.claim))
            end = max(end, shown)
        self.end = end
        self.horizon = min(self.catalog.horizon, end)

    # --- Segments

    def _list(self, changed_ns: int) -> None:
        """List the segments."""
        names = self.files.names(self.folder)
        state = self._state()
        horizon = state.horizon if state else 0
        bases = segment_bases(names, horizon=horizon)
        damaged = {base for name in names if (base := base_offset_of(name, DAMAGE)) is not None}
        changed = self._replaced(names)
        self._active = self._active if self._active and self._active.base_offset in bases else None
        segments: list[Segment | ActiveSegment] = []
        damage: list[Damage] = []
        active: _ScannedSegment | None = None
        for base, follower in itertools.zip_longest(bases, bases[1:]):
            segment: Segment | ActiveSegment | None = self._known(base, changed)
            segment = segment or self._close(base, damaged=base in damaged)
            if segment is None and follower is not None:
                segment = self._abandoned(base, follower)
            if segment is None:
                active = self._active
                if active is None or active.base_offset != base:
                    active = _ScannedSegment(base)
                segment = ActiveSegment(active)
            damage += self._damage_before(segments, base)
            damage += self._known_damage.get(base, [])
            segments.append(segment)
        self._active = active
        closed = segments[:-1] if active is not None else segments
        self._floor = closed[-1].end_offset if closed else horizon
        if not segments and state is not None:
            self._floor = max(horizon, state.next_offset)
        if active is not None:
            damage += active.damage
            if not closed:
                self._floor = active.base_offset
        self._forget(set(bases))
        first = bases[0] if bases else self._floor
        self.catalog.replace(segments, damage, horizon=first)
        if HORIZONS in names or self.catalog.horizons:
            self.catalog.horizons = known_horizons(self.files, self.folder)
        self._listed_ns = changed_ns

    def _state(self) -> LogState | None:
        try:
            state = load_state(self.files, self.folder)
        except BadState:
            state = None
        if state is not None and state.log_id != self.log_id:
            self.log_id = state.log_id
            self._active = None
            self._forget(set())  # another log has replaced this one
        return state

    def _replaced(self, names: Sequence[str]) -> set[int]:
        """Return the known segments whose files were replaced: their row groups were merged."""
        found = set()
        for name in names:
            base = base_offset_of(name, SEGMENT)
            known = None if base is None else self._closed.get(base)
            if base is not None and known is not None:
                with contextlib.suppress(FileNotFoundError):
                    if (self.folder / name).stat().st_size != known.size:
                        found.add(base)
        return found

    def _known(self, base: int, changed: Collection[int]) -> Segment | None:
        """Return a closed segment that is known, unless it was replaced."""
        if base in changed:
            del self._closed[base]
            self.catalog.drop_index(base)
        return self._closed.get(base)

    def _close(self, base: int, *, damaged: bool) -> Segment | None:
        """Return a segment with a valid index, None if it has none."""
        size = self.files.size(segment_path(self.folder, base))
        try:
            summary = load_summary(self.files, self.folder, base)
        except StaleIndex:
            return None
        if summary.segment_size != size:
            return None
        if damaged:
            try:
                self._known_damage[base] = load_damage(self.files, self.folder, base)
            except (OSError, ValueError) as error:
                self._known_damage[base] = [
                    Damage(Fault.DAMAGED, base, 0, 0, base, base, str(error))
                ]
        segment = self._closed[base] = Segment(base, summary.end_offset, size, summary.last_us)
        self._left.pop(base, None)
        return segment

    def _abandoned(self, base: int, follower: int) -> ActiveSegment:
        """Return a segment that was never closed, up to the end that the next head gives."""
        scanned = self._left.get(base)
        if scanned is None:
            scanned = self._surveyed(base, follower)
            self._left[base] = scanned
            self._known_damage[base] = scanned.damage
        return ActiveSegment(scanned)

    def _damage_before(self, segments: list[Segment | ActiveSegment], base: int) -> list[Damage]:
        """Return the damage if a segment is missing before the one at `base`."""
        if not segments or segments[-1].end_offset >= base:
            return []
        first = read_head(
            self.files, self.folder, base, log_id=self.log_id, partition=self.partition
        )
        start = first.head.previous_end if first.head is not None and not first.fault else base
        end = segments[-1].end_offset
        if end >= start:
            return []
        reason = "a segment is not there"
        return [Damage(Fault.MISSING_SEGMENT, base, 0, 0, end, start, reason)]

    def _forget(self, bases: set[int]) -> None:
        for known in (self._closed, self._left, self._known_damage):
            for base in [each for each in known if each not in bases]:
                del known[base]

    # --- The active segment

    def _advance(self, active: _ScannedSegment, safe: int | None) -> None:
        """Walk the new part of the active segment."""
        path = segment_path(self.folder, active.base_offset)
        status = path.stat()
        if status.st_ino != active.inode:
            if active.inode >= 0:  # an empty one was removed, and its name used again
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            active.inode = status.st_ino
        seen = (status.st_size, -1 if safe is None else safe)
        if seen == active.seen or (safe is not None and 0 < safe <= active.end_offset):
            return
        if not active.head_read and not self._begin(active):
            return
        damaged = False
        for step in walk(
            self.files,
            path,
            position=active.size,
            base_offset=active.end_offset,
            previous_crc=active.last_crc,
        ):
            if isinstance(step, Good):
                active.index.add_row_group(step.data, step.row_group, step.position)
                active.claim = max(active.claim, step.row_group.synced)
                active.size = step.position + step.row_group.size
                active.last_crc = step.row_group.crc32c
            elif isinstance(step, Bad):
                damaged = step.first_offset < max(safe or 0, active.claim)
                break
            elif isinstance(step, End):
                active.sealed = step.sealed
        active.seen = seen
        if damaged:
            self._survey_damaged(active)

    def _begin(self, active: _ScannedSegment) -> bool:
        """Read the head of a segment; return False if it is not written yet."""
        first = read_head(
            self.files, self.folder, active.base_offset, log_id=self.log_id,
            partition=self.partition,
        )  # fmt: skip
        if first.head is None or first.fault:
            self._survey_damaged(active)
            return False
        active.head_read = True
        active.size = first.head.size
        active.last_crc = first.head.previous_crc
        return True

    def _survey_damaged(self, active: _ScannedSegment) -> None:
        """Replace a damaged segment by the result that recovery would have."""
        found = self._surveyed(active.base_offset, None)
        active.index, active.size, active.last_crc = found.index, found.size, found.last_crc
        active.claim, active.damage = max(active.claim, found.claim), found.damage
        active.sealed = found.sealed
        if found.damage:
            known = [each for each in self.damage if each.segment != active.base_offset]
            self.catalog.replace(
                self.catalog.segments(), known + found.damage, horizon=self.catalog.horizon
            )

    def _surveyed(self, base: int, follower: int | None) -> _ScannedSegment:
        first, following = (
            None if each is None else read_head(
                self.files, self.folder, each, log_id=self.log_id, partition=self.partition
            )
            for each in (base, follower)
        )  # fmt: skip
        if first is None:
            raise AssertionError("a segment has a base offset")
        trusted = first.head is not None and not first.fault
        found = survey(
            self.files,
            self.folder,
            base,
            head_size=first.head.size if first.head else 0,
            previous_crc=first.head.previous_crc if first.head and trusted else None,
            followed=follower is not None,
            previous_end=following.head.previous_end
            if following is not None and following.head is not None and not following.fault
            else None,
        )
        scanned = _ScannedSegment(base)
        scanned.index = found.row_groups
        scanned.size = found.content_size
        scanned.last_crc = found.last_crc
        scanned.damage = found.damage
        scanned.sealed = found.sealed
        scanned.head_read = trusted
        return scanned

    # --- Looking up

    def removed_until(self, selection: Selection, *, start: int, end: int) -> int:
        """Return the offset before which selected messages of a range may have been removed.

        It is `start` if none was. The horizon may move meanwhile.
        """
        while start < min(end, self.horizon):
            horizon = self.horizon
            known = load_removed(self.files, self.folder, horizon)
            if known is None and self.refresh().horizon != horizon:
                continue  # the record has the number of the new horizon
            known = known or RemovedTopics(horizon, horizon)
            return known.until(selection, start=start, end=end)
        return start

    def missing_segment(self, offset: int, error: FileNotFoundError) -> LogError:
        """Return the error for messages from `offset` on whose segment is missing."""
        state = self._state()
        if state is not None and state.horizon > offset:
            return OffsetBelowHorizon(offset, state.horizon)
        return LogDamaged(offset, self.end, f"{error.filename} is not there any more")

    def find_time(self, timestamp_us: int) -> int:
        """Return the first offset taken at or after a time, or the end."""
        try:
            return offset_at_time(self.files, self.catalog, timestamp_us, self.end)
        except FileNotFoundError as error:
            raise self.missing_segment(self.horizon, error) from error
