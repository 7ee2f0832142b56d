"""A log in a data folder that executors can access; they read its segment files directly."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import (
    LogDamaged,
    LogError,
    LogReplaced,
    OffsetBelowHorizon,
    TierUnavailable,
)
from penstock.limits import (
    SPARK_TASK_BYTES,
    SPARK_TASK_BYTES_MIN,
    SPARK_TIER_SECONDS_MAX,
    TIER_RETRY_SECONDS,
)
from penstock.ports import Matched, Subscription
from penstock.ports.selection import Selection
from penstock.spark.errors import OtherLog, RangeLost
from penstock.spark.log_source import (
    Kept,
    LogBounds,
    Losses,
    Range,
    ReadRequest,
    Task,
    lost_while_reading,
)
from penstock.spark.parallelism import TaskLimit, task_count
from penstock.storage.arrow.format.file_names import partition_folder, segment_path
from penstock.storage.arrow.format.log_state import BadState, load_state
from penstock.storage.arrow.format.topic_horizons import (
    NO_HORIZONS,
    TopicHorizons,
    known_horizons,
)
from penstock.storage.arrow.read.follow import LogFollower, partitions_of
from penstock.storage.arrow.read.matching import match
from penstock.storage.arrow.read.pieces import Piece, Span, cut, plan, read_pieces
from penstock.storage.arrow.read.tiered_files import TieredFiles
from penstock.storage.files import Files
from penstock.storage.group_offsets import GroupOffsets

__all__ = ["FileTask", "FolderSource"]


class FileTask(Task):
    """Pieces of segments, and the range of offsets to read from them."""

    def __init__(
        self,
        data: str,
        span: Range,
        pieces: list[Piece],
        horizons: TopicHorizons = NO_HORIZONS,
    ) -> None:
        super().__init__(None)
        self.horizons = horizons
        self.data = data
        self.span = span
        self.pieces = pieces

    @property
    def rows_max(self) -> int:
        """See Task."""
        return sum(piece.end_offset - piece.first_offset for piece in self.pieces)

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """See Task. Retention may remove a segment meanwhile, or another log replace this one."""
        damaged = None if request.fail_on_data_loss else self._damaged
        folder = partition_folder(Path(self.data), self.span.partition)
        replaced = self._replaced(folder)
        if replaced is not None:
            if request.fail_on_data_loss:
                raise replaced
            lost_while_reading(replaced, self.data, self.rows_max)
            return
        horizons = self.horizons
        if horizons.keeps_last:
            horizons = horizons.with_last_of(known_horizons(Files(), folder))
        for piece in self.pieces:
            try:
                self._fetch(folder, piece)
                yield from read_pieces(
                    folder,
                    [piece],
                    first=self.span.start,
                    last=self.span.end,
                    columns=request.columns,
                    damaged=damaged,
                    horizons=horizons,
                )
            except LogDamaged as error:  # an object that is not what was uploaded
                if damaged is None:
                    raise
                damaged(error)
            except FileNotFoundError as error:
                missing = self._missing_segment(folder, piece, error)
                if request.fail_on_data_loss:
                    raise missing from error
                lost_while_reading(missing, self.data, piece.end_offset - piece.first_offset)

    def _fetch(self, folder: Path, piece: Piece) -> None:
        """Fetch the segment of a piece if it is in an object store; wait while that is away.

        Raise TierUnavailable after SPARK_TIER_SECONDS_MAX.
        """
        path = segment_path(folder, piece.segment)
        deadline = time.monotonic() + SPARK_TIER_SECONDS_MAX
        while not path.exists():
            files = TieredFiles()
            try:
                files.close(files.open_to_read(path))
            except TierUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(TIER_RETRY_SECONDS)
            else:
                return

    def _replaced(self, folder: Path) -> LogReplaced | None:
        """Return the error if the folder has another log than the one that was planned."""
        try:
            state = load_state(Files(), folder)
        except BadState:
            return None
        found = "" if state is None else f"{state.log_id:012x}"
        if not found or not self.span.log or found == self.span.log:
            return None
        where = f"partition {self.span.partition}, {self.data}"
        return OtherLog(self.span.log, found, self.span.start, where)

    def _damaged(self, error: LogDamaged) -> None:
        lost_while_reading(error, self.data, error.resumes_at - error.offset)

    def _missing_segment(
        self, folder: Path, piece: Piece, error: FileNotFoundError
    ) -> OffsetBelowHorizon | LogDamaged:
        """Return the error for a missing segment."""
        first = max(piece.first_offset, self.span.start)
        try:
            state = load_state(Files(), folder)
        except BadState:
            state = None
        if state is not None and state.horizon > first:
            end = min(piece.end_offset, self.span.end)
            return RangeLost(first, end, f"partition {self.span.partition}, {self.data}")
        return LogDamaged(first, piece.end_offset, f"{error.filename} is not there")


class FolderSource:
    """The LogSource of a data folder. Raise CannotRead if there is no log."""

    has_index = True

    def __init__(self, data: Path) -> None:
        self.name = str(data)
        self._data = data
        self._followers = {
            partition: LogFollower(data, partition=partition) for partition in partitions_of(data)
        }
        self._groups = GroupOffsets(data)

    def bounds(self) -> dict[int, LogBounds]:
        """See LogSource."""
        found = {}
        for partition, each in self._followers.items():
            bounds = each.bounds()
            log = "" if each.log_id is None else f"{each.log_id:012x}"
            found[partition] = LogBounds(bounds.horizon, bounds.end, log)
        return found

    def offset_at(self, partition: int, timestamp_us: int) -> int:
        """See LogSource."""
        return self._followers[partition].find_time(timestamp_us)

    def match(self, span: Range, selection: Selection, *, rows_max: int | None = None) -> Matched:
        """See LogSource."""
        follower = self._followers[span.partition]
        while True:
            kept = self.kept(span, selection)
            try:
                found = match(
                    follower.folder,
                    follower.catalog,
                    start=kept.start,
                    end=span.end,
                    selection=selection,
                    rows_max=rows_max,
                )
                break
            except FileNotFoundError as error:  # retention removed a segment meanwhile
                horizon = follower.horizon
                if follower.refresh().horizon == horizon:
                    missing: LogError = follower.missing_segment(span.start, error)
                    raise missing from error
        lost = kept.lost_until - span.start
        if lost:
            end = found.end if found.rows else kept.lost_until
            return Matched(end, lost + found.rows, span.start)
        return found if found.rows else Matched(span.start, 0, span.start)

    def kept(self, span: Range, selection: Selection) -> Kept:
        """See LogSource."""
        follower = self._followers[span.partition]
        until = follower.removed_until(selection, start=span.start, end=span.end)
        return Kept(until, max(span.start, min(follower.horizon, span.end)))

    def tasks(
        self, ranges: Sequence[Range], request: ReadRequest, *, limit: TaskLimit, losses: Losses
    ) -> list[Task]:
        """See LogSource: pieces of about the same size, cut between groups."""
        planned: list[tuple[Range, list[Span]]] = []
        for span in ranges:
            found = self._plan(span, request, losses)
            if found is not None:
                planned.append(found)
        sizes = [sum(each.end - each.position for each in spans) for _, spans in planned]
        total = sum(sizes)
        if not total:
            return []
        count = limit.tasks or task_count(
            total, cores=limit.cores, size_min=SPARK_TASK_BYTES_MIN, size_usual=SPARK_TASK_BYTES
        )
        return [
            FileTask(self.name, span, pieces, self._followers[span.partition].catalog.horizons)
            for (span, spans), size in zip(planned, sizes, strict=True)
            if size
            for pieces in cut(spans, max(1, round(count * size / total)))
        ]

    def _plan(
        self, wanted: Range, request: ReadRequest, losses: Losses
    ) -> tuple[Range, list[Span]] | None:
        follower = self._followers[wanted.partition]
        while True:
            span = wanted = losses.kept(wanted, self.kept(wanted, request.selection))
            if span.start >= span.end:
                return None
            try:
                spans = plan(follower.catalog, span.start, span.end, request.selection)
                break
            except FileNotFoundError as error:  # retention removed a segment meanwhile
                horizon = follower.horizon
                if follower.refresh().horizon == horizon:
                    missing: LogError = follower.missing_segment(span.start, error)
                    raise missing from error
        for damage in follower.damage:
            first = max(damage.first_offset, span.start)
            until = min(damage.resumes_at, span.end)
            if first < until:
                losses.damaged(span.partition, LogDamaged(first, until, damage.reason))
        return span, spans

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int,
        subscription: Subscription | None,
    ) -> None:
        """See LogSource."""
        self._groups.commit(group, offsets, lost=lost, subscription=subscription)
