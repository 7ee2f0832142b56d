"""Logs that live on recorded files, and what they have promised by when."""

import contextlib
import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock._kernels.block import Block, TopicSlots
from penstock.model import Durability, Kind
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.arrow.format.file_names import SEGMENT, partition_folder, segment_path
from penstock.storage.arrow.format.index_file import load_index
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.format.segment import (
    BadRowGroup,
    check_row_group,
    head,
    parse_row_group,
)
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.recover.recovery import Recovered, Segment, recover
from penstock.storage.arrow.write.committer import Committer, Tail
from penstock.storage.arrow.write.retention import remove_segments
from penstock.storage.arrow.write.topic_journal import TopicJournal
from penstock.storage.arrow.write.watermark import Watermark, read_watermark
from penstock.storage.commits import Commit, Outcome
from tests.support.log_rows import LOG_ID, START_US
from tests.support.recorded_files import RecordedFiles

FOLDER = partition_folder(Path("/data"), 0)
SMALL = 12
"""A value that leaves its row group within a page."""


class Row(NamedTuple):
    """A message, as Arrow reads it from a segment."""

    offset: int
    value: bytes
    message_id: str


class RowGroup(NamedTuple):
    """The bytes of a row group, where they were written, and the offset behind its messages."""

    position: int
    data: bytes
    end: int


class Promise(NamedTuple):
    """What holds at some moment: rows that were acknowledged, what may be gone, topics."""

    rows: frozenset[Row]
    horizon: int
    topics: frozenset[str]


def id_of(offset: int) -> str:
    """The message id: log id, version 8, partition 0, variant 2, offset."""
    return str(uuid.UUID(int=LOG_ID << 80 | 8 << 76 | 2 << 62 | offset))


class Life:
    """What was done to the files of a log, and what its clients were told meanwhile.

    `sent` is every message that was ever given an offset; some offsets were given to several,
    if nobody was told that the first is safe.
    """

    def __init__(self, files: RecordedFiles | None = None, folder: Path = FOLDER) -> None:
        self.files = files or RecordedFiles()
        self.folder = folder
        self.sent: set[Row] = set()
        self._serial = itertools.count()
        self._told: list[tuple[int, frozenset[Row]]] = []
        self._topics: list[tuple[int, frozenset[str]]] = []
        self.horizons: list[tuple[int, int]] = []
        self._row_groups: list[RowGroup] = []
        self._row_groups_known = 0

    # --- What is told

    def row(self, offset: int, size: int = SMALL) -> Row:
        """A message that is sent with an offset; no two are alike."""
        value = (b"%d.%d." % (offset, next(self._serial))).ljust(size, b"x")
        row = Row(offset, value, id_of(offset))
        told = {each.offset for _, rows in self._told for each in rows}
        assert offset not in told, "the offset of a message that was acknowledged is given again"
        self.sent.add(row)
        return row

    def acknowledge(self, rows: frozenset[Row], topics: frozenset[str] = frozenset()) -> None:
        """Tell clients that messages, and topics, are safe."""
        self._told.append((len(self.files.operations), rows))
        self._topics.append((len(self.files.operations), topics))

    def retain(self, horizon: int) -> None:
        """Decide that messages before an offset need not be kept."""
        self.horizons.append((len(self.files.operations), horizon))

    def promise(self, length: int) -> Promise:
        """What was promised when `length` operations were done."""
        horizon = max((each for at, each in self.horizons if at <= length), default=0)
        told = (row for at, rows in self._told if at <= length for row in rows)
        named = (name for at, names in self._topics if at <= length for name in names)
        return Promise(
            frozenset(row for row in told if row.offset >= horizon), horizon, frozenset(named)
        )

    # --- What is written

    def row_groups(self) -> list[RowGroup]:
        """All row groups that were written so far, with their first bytes and their last."""
        operations = self.files.operations
        names = {each.inode: each.path.name for each in operations if each.kind == "create"}
        heads: dict[int, bytes] = {}
        for number, each in enumerate(operations):
            if each.kind == "write" and names.get(each.inode, "").endswith(SEGMENT):
                if not each.position:
                    heads[each.inode] = each.data
                elif len(each.data) > 8 and number >= self._row_groups_known:
                    self._add_row_group(heads[each.inode], each.position, each.data)
        self._row_groups_known = len(operations)
        return self._row_groups

    def _add_row_group(self, head: bytes, position: int, data: bytes) -> None:
        try:
            with pa.ipc.open_stream(head + data) as stream:
                offsets = stream.read_next_batch().column("offset").to_pylist()
        except (pa.ArrowException, OSError):
            return  # a write that failed
        self._row_groups.append(RowGroup(position, data, offsets[-1] + 1))


class Session:
    """One process that writes the log: a committer on what recovery has found."""

    def __init__(
        self, life: Life, *, segment_bytes_max: int = 1 << 28, watermark: Watermark | None = None
    ) -> None:
        self.life = life
        self.files = life.files
        self.recovered: Recovered = recover(self.files, life.folder, log_id=LOG_ID)
        self.next_offset = self.recovered.next_offset
        self._end = self.next_offset
        self._journal = TopicJournal(self.files, life.folder)
        topics = frozenset(name for name, _ in self._journal.load().names)
        self._catalog = Catalog(
            self.files, life.folder, self.recovered.segments, horizon=self.recovered.horizon
        )
        self._watermark = watermark
        self._slots = TopicSlots()
        self._commits = itertools.count(1)
        self._rows: frozenset[Row] = frozenset()
        self._added: list[str] = []
        self._waiting: frozenset[str] = frozenset()
        self.outcomes: list[Outcome] = []
        self.committer = Committer(
            self.files,
            life.folder,
            log_id=LOG_ID,
            partition=0,
            tail=Tail(self.recovered.previous_end, self.recovered.previous_crc),
            observer=self._catalog,
            journal=self._journal,
            done=self._done,
            segment_bytes_max=segment_bytes_max,
            watermark=watermark,
        )
        if not self.files.failures:
            # Whoever reads the log now sees all of it, and must not see less of it later. What
            # a sync that failed has left is another matter: it can be read until the power fails.
            found = frozenset(rows_of(self.files, self.recovered, life.folder))
            life.acknowledge(found - life.promise(len(self.files.operations)).rows, topics)

    def add_topic(self, name: str) -> None:
        """Have a topic remembered with the next commit."""
        self._journal.add(name, b"")
        self._added.append(name)

    def commit(
        self,
        *sizes: Sequence[int],
        durability: Durability = Durability.FSYNC,
    ) -> bool:
        """Commit lists of values that are so large; tell whether it went well."""
        blocks, offsets = [], []
        rows: list[Row] = []
        for sizes_of_one in sizes:
            block = Block(self._slots)
            block.clear()
            offsets.append(self.next_offset)
            blocks.append(block)
            for size in sizes_of_one:
                row = self.life.row(self.next_offset, size)
                self.next_offset += 1
                rows.append(row)
                assert block.append_record(
                    protocol=LAMAMQ.number,
                    kind=Kind.PUBLISH,
                    topic=(self._added or ["topic"])[-1].encode(),
                    value=row.value,
                    sender=b"somebody",
                    client=1000,
                    timestamp_us=START_US + row.offset,
                )
        self._rows = frozenset(rows)
        self._waiting = frozenset(self._added)
        self.committer.commit(Commit(next(self._commits), [*blocks], offsets, durability))
        return self.outcomes[-1].error is None

    def _done(self, outcome: Outcome) -> None:
        """Acknowledge what asked for the disk: the rest is not promised."""
        self.outcomes.append(outcome)
        if outcome.error is None:
            self._end = outcome.end
            if self._watermark is not None:
                assert read_watermark(self._watermark._path.parent) == outcome.end
        if outcome.durable:
            self.life.acknowledge(self._rows, self._waiting)

    def revive(self) -> bool:
        """Try to go on after a failure."""
        return self.committer.revive(self.next_offset)

    def forget(self, count: int) -> None:
        """Remove the oldest segments, as retention does."""
        segments = self._catalog.segments()
        closed = [each.base_offset for each in segments if isinstance(each, Segment)]
        if len(closed) <= count:  # the last one says where the log ends
            return
        horizon = closed[count]
        self.life.retain(horizon)
        try:
            self._save(horizon=horizon)
            self._catalog.forget(closed[:count], horizon)
            remove_segments(self.files, self.life.folder, closed[:count])
        except OSError:
            pass  # later

    def close(self) -> None:
        """End as a broker does that is stopped."""
        try:
            self.committer.seal()
            self._journal.close()
            self._save(next_offset=self.next_offset, end=self._end)
        except OSError:
            pass

    def _save(self, **changes: int) -> None:
        old = self.recovered.state
        known = {"next_offset": old.next_offset, "end": old.end, "horizon": old.horizon}
        known["horizon"] = max(known["horizon"], self._catalog.horizon)
        state = LogState(LOG_ID, 0, **{**known, **changes})
        save_state(self.files, self.life.folder, state)


def rows_of(
    files: RecordedFiles, recovered: Recovered, folder: Path = FOLDER, *, damaged: bool = False
) -> list[Row]:
    """All messages of a recovered log. Each segment is a whole Arrow stream, unless `damaged`."""
    found: list[Row] = []
    for segment in recovered.segments:
        path = segment_path(folder, segment.base_offset)
        data = files.read(path, 0, files.size(path))
        found += _readable(files, folder, segment, data) if damaged else _rows_in(data)
    return found


def _readable(files: RecordedFiles, folder: Path, segment: Segment, data: bytes) -> list[Row]:
    """Those that a reader gets: row group by row group, if the checksum is right."""
    index, _ = load_index(files, folder, segment.base_offset)
    parts = [head(LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0)]
    for number in range(len(index)):
        entry = index.entry(number)
        part = data[entry.position : entry.position + entry.size]
        with contextlib.suppress(BadRowGroup):
            if check_row_group(part, parse_row_group(part)):
                parts.append(part)
    return _rows_in(b"".join([*parts, END])) if len(parts) > 1 else []


END = b"\xff\xff\xff\xff\0\0\0\0"
"""What an Arrow stream ends in."""

_known: dict[bytes, list[Row]] = {}


def _rows_in(data: bytes) -> list[Row]:
    if data not in _known:
        if len(_known) > 2_000:
            _known.clear()
        assert data.endswith(END), "a segment without its end"
        rows: list[Row] = []
        try:
            with pa.ipc.open_stream(data) as stream:
                for batch in stream:
                    columns = (batch.column(name).to_pylist() for name in Row._fields)
                    rows += itertools.starmap(Row, zip(*columns, strict=True))
        except (pa.ArrowException, OSError) as error:
            raise AssertionError(f"a segment that Arrow does not read: {error}") from error
        _known[data] = rows
    return _known[data]
