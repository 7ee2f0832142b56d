"""Recovery: finds the segments of a log and their bounds, and repairs an unclean stop.

A closed segment is known by its index and is not read. Any other is walked: a torn tail is cut off,
damage is recorded and left in place, and the segment is closed. Recovery can be interrupted at any
step and started again.
"""

import contextlib
import errno
import itertools
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.storage.arrow.format.damage import Damage, Fault, load_damage, save_damage
from penstock.storage.arrow.format.file_names import (
    DAMAGE,
    INDEX,
    ROWS,
    SEGMENT,
    base_offset_of,
    damage_path,
    index_path,
    rows_path,
    segment_path,
)
from penstock.storage.arrow.format.heads import FirstBytes, read_head
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, Summary, load_summary, save_index
from penstock.storage.arrow.format.log_state import BadState, LogState, load_state, save_state
from penstock.storage.arrow.format.segment import END_OF_STREAM
from penstock.storage.arrow.format.tiered import TieredSegment, load_markers
from penstock.storage.arrow.recover.quarantine import keep_bytes, only_zeros
from penstock.storage.arrow.recover.survey import Survey, Tail, survey
from penstock.storage.arrow.write.retention import remove_segments
from penstock.storage.files import TEMPORARY, Files

__all__ = ["Cut", "Recovered", "Segment", "rebuild_index", "recover"]


class Segment(NamedTuple):
    """A closed segment with the offsets from `base_offset` up to `end_offset`.

    `last_us` is the latest time of its messages, None if it has none.
    """

    base_offset: int
    end_offset: int
    size: int
    last_us: int | None


class Cut(NamedTuple):
    """A torn tail that was cut off, and the quarantine file of its bytes, if there is one."""

    segment: int
    position: int
    length: int
    first_offset: int
    reason: str
    kept: Path | None


class Recovered(NamedTuple):
    """A recovered log. Its next segment starts at `next_offset`.

    `previous_end` and `previous_crc` are for the head of that segment.
    """

    state: LogState
    segments: list[Segment]
    damage: list[Damage]
    cuts: list[Cut]
    next_offset: int
    previous_end: int
    previous_crc: int

    @property
    def horizon(self) -> int:
        """The first offset that is kept."""
        return self.segments[0].base_offset if self.segments else self.next_offset


def recover(
    files: Files, folder: Path, *, partition: int = 0, log_id: int | None = None
) -> Recovered:
    """Recover the log in `folder`, or create it, with `log_id` if given.

    Raise LogFormatTooNew or OSError. The caller holds the lock.
    """
    return _Recovery(files, folder, partition, log_id).run()


class _Recovery:
    def __init__(self, files: Files, folder: Path, partition: int, log_id: int | None) -> None:
        self.files = files
        self.folder = folder
        self.partition = partition
        self.log_id = log_id
        self.damage: list[Damage] = []
        self.cuts: list[Cut] = []
        self.state = LogState(0, partition)
        self.heads: dict[int, FirstBytes] = {}
        self.tiered: dict[int, TieredSegment] = {}  # segments that are only in an object store

    def run(self) -> Recovered:
        self.files.make_folder(self.folder)
        names = self.files.names(self.folder)
        local = {base for name in names if (base := base_offset_of(name, SEGMENT)) is not None}
        markers = load_markers(self.files, self.folder, names)
        self._load_state(sorted(local), markers)
        expected_id = self.state.log_id
        self.tiered = {
            base: each
            for base, each in markers.items()
            if base not in local and base >= self.state.horizon and each.log_id == expected_id
        }
        bases = sorted(local | self.tiered.keys())
        for base in bases:
            if base in self.tiered:  # the store may not answer now
                self.heads[base] = self.tiered[base].first_bytes()
                continue
            self.heads[base] = read_head(
                self.files, self.folder, base, log_id=expected_id, partition=self.partition
            )
        bases = self._finish_retention(bases)
        self._sweep(names, bases)

        segments: list[Segment] = []
        last_crc = 0
        for base, follower in itertools.zip_longest(bases, bases[1:]):
            found = self._segment(base, follower)
            if found is not None:
                segment, last_crc = found
                self._check_seam(segments, segment)
                segments.append(segment)
        return self._finish(segments, last_crc)

    # --- State and leftovers

    def _load_state(self, bases: list[int], markers: Mapping[int, TieredSegment]) -> None:
        every = sorted({*bases, *markers})
        try:
            state = load_state(self.files, self.folder)
            problem = "log.json is missing" if state is None and every else ""
        except BadState as error:
            state = None
            problem = str(error)
        if state is not None:
            self.state = state
            return
        log_id = next((each.log_id for each in markers.values()), self.log_id)
        for base in bases:
            first = read_head(self.files, self.folder, base, log_id=None, partition=self.partition)
            if first.head is not None and not first.fault:
                log_id = first.head.log_id
                break
        if problem:
            self.damage.append(Damage(Fault.BAD_STATE, 0, 0, 0, 0, 0, problem))
        self.state = LogState(
            log_id=secrets.randbits(48) if log_id is None else log_id,
            partition=self.partition,
            horizon=every[0] if every else 0,
        )
        save_state(self.files, self.folder, self.state)

    def _finish_retention(self, bases: list[int]) -> list[int]:
        """Remove segments below the horizon that are still there."""
        kept = [base for base in bases if base >= self.state.horizon]
        gone = [base for base in bases if base < self.state.horizon]
        if gone and kept:
            # First the horizon: a killed process may not have synced it.
            self.files.sync_folder(self.folder)
            remove_segments(self.files, self.folder, gone)
            return kept
        return bases

    def _sweep(self, names: list[str], segments: list[int]) -> None:
        """Remove unfinished files, and files without a segment."""
        known = set(segments)
        swept = False
        for name in names:
            bases = (base_offset_of(name, suffix) for suffix in (INDEX, ROWS, DAMAGE))
            base = next((each for each in bases if each is not None), None)
            if name.endswith(TEMPORARY) or (base is not None and base not in known):
                self.files.remove(self.folder / name)
                swept = True
        if swept:
            self.files.sync_folder(self.folder)

    # --- One segment

    def _segment(self, base: int, follower: int | None) -> tuple[Segment, int] | None:
        """Return a closed segment and the checksum of its last row group.

        None if there is nothing in it: then it is gone.
        """
        first = self.heads[base]
        tiered = self.tiered.get(base)
        if tiered is not None:
            self._load_damage(base)
            segment = Segment(base, tiered.end_offset, tiered.size, tiered.last_us)
            return segment, tiered.last_crc
        previous_end = None
        if (
            follower is not None
            and follower == max(self.heads)
            and self.heads[follower].head is None
        ):
            follower = None  # it was created, and its head was not written
        if follower is not None and not self.heads[follower].fault:
            following = self.heads[follower].head
            previous_end = following.previous_end if following else None
        size = self.files.size(segment_path(self.folder, base))
        try:
            summary = load_summary(self.files, self.folder, base)
            fresh = summary.segment_size == size
        except StaleIndex:
            fresh = False
        if fresh:
            self._load_damage(base)
            known = any(each.segment == base and each.position == 0 for each in self.damage)
            if (first.fault or first.crc != summary.head_crc) and not known:
                reason = first.fault or "it is not what was written"
                self.damage.append(_bad_head(base, first, reason))
            segment = Segment(base, summary.end_offset, size, summary.last_us)
            return segment, summary.last_crc
        return self._repair(base, first, followed=follower is not None, previous_end=previous_end)

    def _repair(
        self, base: int, first: FirstBytes, *, followed: bool, previous_end: int | None
    ) -> tuple[Segment, int] | None:
        found = _survey(
            self.files, self.folder, base, first, followed=followed, previous_end=previous_end
        )
        if not len(found.row_groups) and all(
            each.first_offset == each.resumes_at for each in found.damage
        ):
            self._discard(base, first, found.tail)
            return None
        if (
            found.damage
        ):  # first: the bytes to cut off may be the only proof that it is not a torn tail
            save_damage(self.files, self.folder, base, found.damage)
        if found.tail is not None:
            self._cut(base, found.tail, found.row_groups.end_offset)
        with _room_permitting():
            _close(self.files, self.folder, found, first)
        self.damage += found.damage
        size = self.files.size(segment_path(self.folder, base))
        segment = Segment(base, found.row_groups.end_offset, size, found.row_groups.last_us)
        return segment, found.last_crc

    def _discard(self, base: int, first: FirstBytes, tail: Tail | None) -> None:
        """Remove an empty segment: the next one may get its name."""
        path = segment_path(self.folder, base)
        if tail is None or first.fault:
            size = self.files.size(path)
            resumes_at = tail.resumes_at if tail else base
            keep = bool(first.fault) and size > 0
            tail = Tail(0, size if keep else 0, base, resumes_at, keep=keep, reason=first.fault)
        self._raise_floor(max(base, tail.resumes_at), end=0)
        if tail.length:
            kept = self._keep(path, tail)
            self.cuts.append(
                Cut(base, tail.position, tail.length, tail.first_offset, tail.reason, kept)
            )
        self.files.remove(index_path(self.folder, base))
        self.files.remove(rows_path(self.folder, base))
        self.files.remove(damage_path(self.folder, base))
        self.files.remove(path)
        self.files.sync_folder(self.folder)

    def _cut(self, base: int, tail: Tail, end: int) -> None:
        self._raise_floor(tail.resumes_at, end=end)
        path = segment_path(self.folder, base)
        kept = self._keep(path, tail)
        self.files.truncate(path, tail.position)
        self.cuts.append(
            Cut(base, tail.position, tail.length, tail.first_offset, tail.reason, kept)
        )

    def _keep(self, path: Path, tail: Tail) -> Path | None:
        if not tail.keep or only_zeros(
            self.files, path, position=tail.position, length=tail.length
        ):
            return None
        return keep_bytes(self.files, self.folder, path, position=tail.position, length=tail.length)

    def _raise_floor(self, next_offset: int, *, end: int) -> None:
        """Record on disk that offsets below `next_offset` were assigned, before their bytes go."""
        if next_offset > max(end, self.state.next_offset):
            self._save(next_offset=next_offset)
        elif next_offset > end:
            self.files.sync_folder(self.folder)  # log.json has it, but may not be synced yet

    def _save(self, **changes: int) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)
        save_state(self.files, self.folder, self.state)

    def _load_damage(self, base: int) -> None:
        try:
            self.damage += load_damage(self.files, self.folder, base)
        except FileNotFoundError:
            pass
        except ValueError as error:
            reason = f"what was wrong with it cannot be read: {error}"
            self.damage.append(Damage(Fault.DAMAGED, base, 0, 0, base, base, reason))

    # --- The whole

    def _check_seam(self, segments: list[Segment], segment: Segment) -> None:
        """Report a segment that does not start where the one before it ends."""
        first = self.heads[segment.base_offset]
        end = segments[-1].end_offset if segments else self.state.horizon
        start = segment.base_offset
        if first.head is not None and not first.fault:
            start = first.head.previous_end
        if not segments and first.head is not None and self.state.horizon == segment.base_offset:
            return
        if end < start:
            self.damage.append(_missing(segment.base_offset, end, start))
        elif end > segment.base_offset:
            reason = f"the segment before it ends at {end}"
            self.damage.append(_bad_head(segment.base_offset, first, reason))

    def _finish(self, segments: list[Segment], last_crc: int) -> Recovered:
        state = self.state
        end = segments[-1].end_offset if segments else state.horizon
        if end < state.end:
            self.damage.append(_missing(end, end, state.end))
            end = state.end
        next_offset = max(end, state.next_offset)
        if not segments and end == state.horizon < next_offset:
            self._save(next_offset=next_offset, end=next_offset, horizon=next_offset)
            end = next_offset
        elif end > state.end:
            with _room_permitting():
                self._save(end=end)
        return Recovered(
            state=self.state,
            segments=segments,
            damage=self.damage,
            cuts=self.cuts,
            next_offset=next_offset,
            previous_end=end,
            previous_crc=last_crc if segments else 0,
        )


@contextlib.contextmanager
def _room_permitting() -> Iterator[None]:
    """Ignore a full disk: the next recovery does what this one could not."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise


def _missing(segment: int, first_offset: int, resumes_at: int) -> Damage:
    return Damage(
        Fault.MISSING_SEGMENT, segment, 0, 0, first_offset, resumes_at, "a segment is not there"
    )


def _bad_head(base: int, first: FirstBytes, reason: str) -> Damage:
    length = first.head.size if first.head is not None else 0
    return Damage(Fault.BAD_HEAD, base, 0, length, base, base, reason)


def _survey(
    files: Files,
    folder: Path,
    base: int,
    first: FirstBytes,
    *,
    followed: bool,
    previous_end: int | None,
) -> Survey:
    """Walk a segment, and put damage of its head first."""
    try:
        known = {each.position for each in load_damage(files, folder, base)}
    except (OSError, ValueError):
        known = set()
    found = survey(
        files,
        folder,
        base,
        head_size=first.head.size if first.head else 0,
        previous_crc=first.head.previous_crc if first.head and not first.fault else None,
        followed=followed,
        previous_end=previous_end,
        known=known,
    )
    if first.fault and first.head:
        found.damage.insert(0, _bad_head(base, first, first.fault))
    if first.head and not first.fault and first.head.last_crc is not None:
        found = found._replace(last_crc=first.head.last_crc)
    return found


def _close(files: Files, folder: Path, found: Survey, first: FirstBytes) -> None:
    """Write the end marker and the index of a segment whose tail is cut off."""
    base = found.row_groups.base_offset
    path = segment_path(folder, base)
    handle = files.open(path)
    try:
        files.sync(handle)  # a killed process may not have; the end marker says that all is on disk
        if not found.sealed or found.tail is not None:
            files.append(handle, [END_OF_STREAM])
            files.sync(handle)
    finally:
        files.close(handle)
    summary = Summary(
        base_offset=base,
        end_offset=found.row_groups.end_offset,
        segment_size=found.content_size + len(END_OF_STREAM),
        head_crc=first.crc,
        last_crc=found.last_crc,
        last_us=found.row_groups.last_us,
    )
    save_index(files, folder, found.row_groups, summary)


def rebuild_index(
    files: Files, folder: Path, base_offset: int, *, end_offset: int
) -> tuple[Index, bool]:
    """Rebuild the index of a closed segment by walking it, and write it.

    Also return whether all of it was found, or its damage is on record. `end_offset` is where it is
    known to end. A disk without room is no obstacle.
    """
    first = read_head(files, folder, base_offset, log_id=None, partition=int(folder.name))
    found = _survey(files, folder, base_offset, first, followed=True, previous_end=end_offset)
    is_whole = found.sealed and found.tail is None
    if is_whole:
        # The file is missing if the segment is in an object store only.
        with _room_permitting(), contextlib.suppress(FileNotFoundError):
            if found.damage:
                save_damage(files, folder, base_offset, found.damage)
            _close(files, folder, found, first)
    return found.row_groups, is_whole or not found.damage
