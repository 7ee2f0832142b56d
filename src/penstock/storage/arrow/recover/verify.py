"""Checks every byte of a log without changing it: `penstock log verify`."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import LogDamaged
from penstock.limits import LOG_OPEN_TRIES_MAX
from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import (
    JOURNAL,
    SEGMENT,
    base_offset_of,
    index_path,
    rows_path,
    segment_bases,
    segment_path,
)
from penstock.storage.arrow.format.heads import FirstBytes, read_head
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, Summary, load_index
from penstock.storage.arrow.format.log_state import BadState, LogState, load_state
from penstock.storage.arrow.format.row_index_file import (
    StaleRowIndex,
    encode_section,
    load_row_index,
)
from penstock.storage.arrow.format.segment import END_OF_STREAM, RowGroup, head
from penstock.storage.arrow.format.tiered import load_markers
from penstock.storage.arrow.read.catalog import Place
from penstock.storage.arrow.read.reader import read_row_group
from penstock.storage.arrow.recover.walk import Bad, End, Good, walk
from penstock.storage.arrow.write.topic_journal import read_topics
from penstock.storage.files import Files

__all__ = ["Verified", "verify"]


class Verified(NamedTuple):
    """Totals of what was checked and is good."""

    segments: int
    row_groups: int
    messages: int
    bytes: int


class _Reached(NamedTuple):
    """End of the segments checked so far; `crc` is None if their last row group is unknown."""

    end: int
    crc: int | None


def verify(
    files: Files,
    folder: Path,
    *,
    partition: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Damage | Verified]:
    """Yield the damage in the log of a partition, and finally the totals of what is good.

    `progress` is called with the bytes read since the last call. Raise LogFormatTooNew. A log that
    is being written may end in an unfinished row group.
    """
    return _Verification(files, folder, partition, progress).run()


class _Verification:
    def __init__(
        self, files: Files, folder: Path, partition: int, progress: Callable[[int], None]
    ) -> None:
        self.files = files
        self.folder = folder
        self.partition = partition
        self.progress = progress
        self.segments = self.row_groups = self.messages = self.bytes = 0
        self.schema_bytes = b""

    def run(self) -> Iterator[Damage | Verified]:
        names = self.files.names(self.folder)
        state: LogState | None = None
        try:
            state = load_state(self.files, self.folder)
            if state is None:
                yield Damage(Fault.BAD_STATE, 0, 0, 0, 0, 0, "log.json is missing")
        except BadState as error:
            yield Damage(Fault.BAD_STATE, 0, 0, 0, 0, 0, str(error))
        log_id = state.log_id if state else None
        bases = segment_bases(names, horizon=state.horizon if state else 0)
        markers = load_markers(self.files, self.folder, names)
        local = {base_offset_of(name, SEGMENT) for name in names}
        tiered = {base: each for base, each in markers.items() if base not in local}
        heads = [
            tiered[base].first_bytes()
            if base in tiered
            else read_head(self.files, self.folder, base, log_id=log_id, partition=self.partition)
            for base in bases
        ]
        reached = _Reached(state.horizon if state else (bases[0] if bases else 0), None)
        if bases and (state is None or state.horizon == bases[0]):
            reached = _Reached(bases[0], None)
            if heads[0].head is not None and not heads[0].fault:
                reached = _Reached(heads[0].head.previous_end, None)
        for number, base in enumerate(bases):
            following = heads[number + 1] if number + 1 < len(bases) else None
            if base in tiered:
                problem = self._fetch(base)  # one at a time: the cache has a limit
                if problem:
                    self.segments += 1
                    end = tiered[base].end_offset
                    yield Damage(Fault.DAMAGED, base, 0, 0, base, end, problem)
                    reached = _Reached(end, None)
                    continue
                heads[number] = read_head(
                    self.files, self.folder, base, log_id=log_id, partition=self.partition
                )
            reached = yield from self._whole_segment(
                base, heads[number], following, reached, log_id
            )
        if state is not None and reached.end < state.end:
            yield _missing(reached.end, reached.end, state.end)
        topics = read_topics(self.files, self.folder)
        if topics.bad_lines:
            reason = f"{topics.bad_lines} lines of {JOURNAL} are not what was written"
            yield Damage(Fault.BAD_JOURNAL, 0, topics.first_bad, 0, 0, 0, reason)
        if topics.torn:
            reason = f"{JOURNAL} does not end with a whole line"
            yield Damage(Fault.BAD_JOURNAL, 0, topics.size, topics.torn, 0, 0, reason)
        yield Verified(self.segments, self.row_groups, self.messages, self.bytes)

    def _fetch(self, base: int) -> str:
        """Fetch a segment from the object store; return why its object is not usable."""
        try:
            self.files.close(self.files.open_to_read(segment_path(self.folder, base)))
        except LogDamaged as error:
            return error.reason
        except FileNotFoundError as error:
            return error.strerror or "it is missing"
        return ""

    def _whole_segment(
        self,
        base: int,
        first: FirstBytes,
        following: FirstBytes | None,
        reached: _Reached,
        log_id: int | None,
    ) -> Generator[Damage, None, _Reached]:
        """Check one segment, and again if a broker replaces it meanwhile; return its end."""
        path = segment_path(self.folder, base)
        for left in reversed(range(LOG_OPEN_TRIES_MAX)):
            totals = self.segments, self.row_groups, self.messages, self.bytes
            inodes = _inode(path), _inode(index_path(self.folder, base))
            if inodes[0] is not None:  # it may have been replaced since all heads were read
                first = read_head(
                    self.files, self.folder, base, log_id=log_id, partition=self.partition
                )
            found, end = [], reached
            steps = self._segment(base, first, following, reached)
            while True:
                try:
                    found.append(next(steps))
                except StopIteration as stop:
                    end = stop.value
                    break
            if not left or (_inode(path), _inode(index_path(self.folder, base))) == inodes:
                break
            self.segments, self.row_groups, self.messages, self.bytes = totals
        yield from found
        return end

    def _segment(
        self, base: int, first: FirstBytes, following: FirstBytes | None, reached: _Reached
    ) -> Generator[Damage, None, _Reached]:
        """Check one segment and that it continues the one before; return its end."""
        self.segments += 1
        previous_crc = None
        if first.fault:
            size = first.head.size if first.head else 0
            yield Damage(Fault.BAD_HEAD, base, 0, size, base, base, first.fault)
        elif first.head is not None:
            previous_crc = first.head.previous_crc
            if reached.end == first.head.previous_end and reached.crc not in {None, previous_crc}:
                reason = "the group before it is not the one it was written behind"
                yield Damage(Fault.BAD_HEAD, base, 0, first.head.size, base, base, reason)
                previous_crc = reached.crc
            if reached.end < first.head.previous_end:
                yield _missing(base, reached.end, first.head.previous_end)
            elif reached.end > first.head.previous_end:
                reason = f"the segment before it ends at {reached.end}"
                yield Damage(Fault.BAD_HEAD, base, 0, first.head.size, base, base, reason)
            elif first.head.previous_end < base:
                yield Damage(
                    Fault.GAP, base, 0, 0, first.head.previous_end, base,
                    "given to messages whose write failed",
                )  # fmt: skip
        index, summary, stale = self._index(base)
        previous_end = None
        if following is not None and following.head is not None and not following.fault:
            previous_end = following.head.previous_end
        reached = yield from self._row_groups(
            base, first, previous_crc, summary, closed=following is not None,
            previous_end=previous_end,
        )  # fmt: skip
        if stale and (following is not None or summary is not None):
            yield Damage(Fault.STALE_INDEX, base, 0, 0, base, base, stale)
        if index is not None and summary is not None and not stale:
            stale = self._stale_rows(index, summary)
            if stale:
                yield Damage(Fault.STALE_INDEX, base, 0, 0, base, base, stale)
        return reached

    def _index(self, base: int) -> tuple[Index | None, Summary | None, str]:
        """Return the index and its summary, and its fault."""
        try:
            index, summary = load_index(self.files, self.folder, base)
        except StaleIndex as error:
            return None, None, str(error)
        size = self.files.size(segment_path(self.folder, base))
        if summary.segment_size != size:
            reason = f"made when the segment had {summary.segment_size} bytes, not {size}"
            return index, summary, reason
        return index, summary, ""

    def _stale_rows(self, index: Index, summary: Summary) -> str:
        """Return the fault of the row index of a segment; a segment needs none."""
        base = summary.base_offset
        path = rows_path(self.folder, base)
        try:
            self.files.size(path)
        except OSError:
            return ""
        try:
            for section in load_row_index(self.files, self.folder, summary).check():
                number = index.at_offset(section.base_offset)
                if number == len(index):
                    return f"{path.name} has a row group that the segment does not have"
                place = Place(segment_path(self.folder, base), index.entry(number))
                try:
                    found = read_row_group(self.files, place)
                except LogDamaged:
                    continue  # it is reported
                if encode_section(found.data, found.row_group) != section:
                    return f"{path.name} does not fit the row group at {section.base_offset}"
        except StaleRowIndex as error:
            return str(error)
        return ""

    def _row_groups(
        self,
        base: int,
        first: FirstBytes,
        previous_crc: int | None,
        summary: Summary | None,
        *,
        closed: bool,
        previous_end: int | None,
    ) -> Generator[Damage, None, _Reached]:
        end, crc = base, previous_crc
        bads: list[Bad] = []
        claim = base
        reported = first.head.size if first.head else 0
        self.progress(reported)
        last = End(0, sealed=False)
        for step in walk(
            self.files, segment_path(self.folder, base),
            position=reported, base_offset=base, previous_crc=previous_crc,
        ):  # fmt: skip
            if isinstance(step, Good):
                row_group = step.row_group
                end, crc = row_group.base_offset + row_group.count, row_group.crc32c
                claim = max(claim, row_group.synced)
                problem = self._unreadable(step.data, row_group)
                if problem:
                    bads.append(
                        Bad(Fault.DAMAGED, step.position, row_group.size, row_group.base_offset,
                            end, whole=True, reason=problem)
                    )  # fmt: skip
                else:
                    self.row_groups += 1
                    self.messages += row_group.count
                    self.bytes += row_group.size
                self.progress(step.position + row_group.size - reported)
                reported = step.position + row_group.size
            elif isinstance(step, Bad):
                bads.append(step)
                end, crc = max(end, step.resumes_at), None
            else:
                last = step
        closed = closed or summary is not None
        if not closed and last.sealed:
            closed = True
        if summary is not None:
            end = max(end, summary.end_offset) if bads else end
        yield from self._judged(base, bads, claim, closed=closed, end=end, sealed=last.sealed)
        if closed and not last.sealed and not bads:
            yield Damage(Fault.BAD_END, base, last.position, 0, end, end, "no end marker")
        size = self.files.size(segment_path(self.folder, base))
        self.progress(size - reported)
        if previous_end is not None and bads:
            end = max(end, previous_end)
        if first.head is not None and not first.fault and first.head.last_crc is not None:
            crc = first.head.last_crc  # row groups were merged; the next head names this checksum
        return _Reached(end, None if bads else crc)

    def _judged(
        self, base: int, bads: list[Bad], claim: int, *, closed: bool, end: int, sealed: bool
    ) -> Iterator[Damage]:
        for number, bad in enumerate(bads):
            fault = bad.fault
            resumes_at = bad.resumes_at
            is_last = number == len(bads) - 1
            if is_last and bad.resumes_at == bad.first_offset and bad.length > len(END_OF_STREAM):
                resumes_at = max(end, resumes_at)
            if fault is Fault.TORN and (closed or bad.first_offset < claim):
                fault = Fault.DAMAGED
            elif fault is Fault.DAMAGED and not closed and bad.first_offset >= claim:
                fault = Fault.TORN
            if (
                closed
                and not sealed
                and is_last
                and bad.length <= len(END_OF_STREAM)
                and bad.length
            ):
                fault = Fault.BAD_END
            if bad.position == 0:
                continue  # the head is reported already
            yield Damage(
                fault, base, bad.position, bad.length, bad.first_offset, resumes_at, bad.reason
            )

    def _unreadable(self, data: bytes, row_group: RowGroup) -> str:
        """Return why Arrow cannot read a row group whose checksum is right; empty if it can."""
        if not self.schema_bytes:
            self.schema_bytes = head(0, partition=0, base_offset=0, previous_end=0, previous_crc=0)
        body = memoryview(data)[row_group.start : row_group.start + row_group.size]
        zeros_end = row_group.body_start + row_group.zeros
        if data[row_group.body_start : zeros_end] != bytes(row_group.zeros):
            return "bytes that its metadata call zeros are not"
        try:
            stream = b"".join((self.schema_bytes, body, END_OF_STREAM))
            with pa.ipc.open_stream(stream) as reader:
                batch = reader.read_next_batch()
                batch.validate(full=True)
                first = batch.column("offset")[0].as_py()
        except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
            return f"Arrow cannot read it: {error}"
        if len(batch) != row_group.count or first != row_group.base_offset:
            expected = f"{row_group.count} from {row_group.base_offset}"
            return f"{len(batch)} messages from {first}, not {expected}"
        return ""


def _inode(path: Path) -> int | None:
    """Return the inode of a file, None if the file is missing. A replaced file has another one."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _missing(segment: int, first_offset: int, resumes_at: int) -> Damage:
    return Damage(
        Fault.MISSING_SEGMENT, segment, 0, 0, first_offset, resumes_at, "a segment is not there"
    )
