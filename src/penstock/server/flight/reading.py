"""Reading the log for Flight: from its files, in the threads of those who ask.

The log says up to where it can be shown; the event loop has no part in anything else.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.access import ANYONE, Action, Principal
from penstock.errors import (
    LogDamaged,
    LogError,
    NotAllowed,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.flight.errors import BadRequest
from penstock.flight.protocol import Bounds, OffsetAt, OffsetRange, ReadRange, Splits
from penstock.limits import FLIGHT_SPLITS_MAX, RECORDS_BYTES_MAX, RECORDS_ROWS_MAX
from penstock.patterns import compile_pattern
from penstock.storage.arrow.files import Files
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.reader import read_group
from penstock.storage.arrow.read.records import RECORD_SCHEMA
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.plain import Plain
from penstock.storage.schema import KINDS, PROTOCOLS, RECORD_COLUMNS, SCHEMA
from penstock.storage.selection import Selection, TopicTest

__all__ = ["Reading"]

_EVERYTHING: Final = "#"
"""The pattern that stands for a range without topics."""
_COLUMNS: Final = tuple(SCHEMA.names[:RECORD_COLUMNS])
_COMPACT: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), field.type.value_type))
        if pa.types.is_dictionary(field.type)
        else field
        for field in list(SCHEMA)[:RECORD_COLUMNS]
    ]
)
"""The record's columns with dictionaries that have room for those of many groups."""


class Reading:
    """The log to those who are not in the event loop's thread. Any thread may call."""

    def __init__(self, log: ArrowLog) -> None:
        self._log = log
        self._names: dict[int, frozenset[str]] = {}  # of segments that are closed

    # --- What there is ----------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """No message that is published from now on has a lower offset."""
        return self._log.next_offset

    @property
    def partition(self) -> int:
        """The only one there is."""
        return self._log.partition

    def bounds(self) -> Bounds:
        """Return what can be read."""
        end = self._log.end
        return Bounds(min(self._log.horizon, end), end)

    def topics(self, principal: Principal) -> list[str]:
        """Return the topics of all messages that are kept and that a principal may read."""
        catalog = self._log.catalog
        names: set[str] = set()
        kept = set()
        for segment in catalog.segments():
            kept.add(segment.base_offset)
            found = self._names.get(segment.base_offset)
            if found is None:
                index = catalog.index(segment)
                groups = index.table()
                found = frozenset(pc.unique(groups.column("topics").values).to_pylist())
                for group in pc.indices_nonzero(groups.column("topics").is_null()).to_pylist():
                    entry = index.entry(group)  # it has more topics than an index names
                    end = min(entry.base_offset + entry.count, self._log.end)
                    for batch in self.batches(entry.base_offset, end, columns=["topic"]):
                        found |= set(pc.unique(batch.column("topic")).to_pylist())
                if isinstance(segment, Segment):
                    self._names[segment.base_offset] = found
            names |= found
        for base_offset in set(self._names) - kept:
            self._names.pop(base_offset, None)
        return sorted(name for name in names if principal.may(Action.SUBSCRIBE, name))

    def offset_at(self, request: OffsetAt) -> int:
        """Return the first offset that was taken at or after a time, or the end."""
        self._check_partition(request.partition)
        end = self._log.end
        try:
            place = self._log.catalog.place_of_time(request.timestamp_us)
            if place is None or place.entry.base_offset >= end:
                return end
            found = read_group(Files(), place)
        except FileNotFoundError as error:
            raise self._gone(0, error) from error
        return min(found.base_offset + found.row_at_time(request.timestamp_us), end)

    def splits(self, request: Splits, principal: Principal) -> list[OffsetRange]:
        """Return a range in parts of about the same size that meet between groups."""
        self._check_range(request.partition, request.start, request.end)
        if not 0 < request.count <= FLIGHT_SPLITS_MAX:
            problem = f"count is {request.count}, allowed are 1 to {FLIGHT_SPLITS_MAX}"
            raise BadRequest("splits", problem)
        selection = _selection(request, principal)
        try:
            spans = plan(self._log.catalog, request.start, request.end, selection)
        except FileNotFoundError as error:
            raise self._gone(request.start, error) from error
        parts = cut(spans, request.count)
        starts = [request.start, *(part[0].first_offset for part in parts[1:]), request.end]
        return [OffsetRange(start, end) for start, end in itertools.pairwise(starts) if start < end]

    # --- Ranges -----------------------------------------------------------------------------------

    def read(
        self, request: ReadRange, principal: Principal
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the messages of a range as plain record batches, and their schema.

        Raise what a range cannot be read for at once, as far as that is known.
        """
        self._check_range(request.partition, request.start, request.end)
        columns = _columns(request.columns)
        selection = _selection(request, principal)
        fields = _COMPACT if request.dictionaries else RECORD_SCHEMA
        schema = pa.schema([fields.field(name) for name in columns])
        found = self._selected(request.start, request.end, columns, selection)
        return schema, _coalesced(_shaped(found, schema))

    def batches(
        self, start: int, end: int, *, columns: Sequence[str] = _COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range as they stand in the log."""
        self._check_range(self._log.partition, start, end)
        return self._selected(start, end, columns, Selection())

    def _selected(
        self, start: int, end: int, columns: Sequence[str], selection: Selection
    ) -> Iterator[pa.RecordBatch]:
        damage = self._log.catalog.damage_between(start, end)
        readable = end if damage is None else max(damage.first_offset, start)
        needed = {*columns, *selection.columns}
        try:
            spans = plan(self._log.catalog, start, readable, selection)
            pieces = [span.part(span.first, span.last) for span in spans]
            for batch in read_pieces(
                self._log.folder, pieces, first=start, last=readable, columns=sorted(needed)
            ):
                yield selection.of(batch)
        except FileNotFoundError as error:
            raise self._gone(start, error) from error
        if damage is not None:
            raise LogDamaged(readable, min(damage.resumes_at, end), damage.reason)

    def _gone(self, offset: int, error: FileNotFoundError) -> LogError:
        """Return what to raise for messages whose segment is not there: retention goes on."""
        if self._log.horizon > offset:
            return OffsetBelowHorizon(offset, self._log.horizon)
        return LogDamaged(offset, self._log.end, f"{error.filename} is not there any more")

    def _check_partition(self, partition: int) -> None:
        if partition != self._log.partition:
            problem = f"there is no partition {partition}, only {self._log.partition}"
            raise BadRequest("partition", problem)

    def _check_range(self, partition: int, start: int, end: int) -> None:
        self._check_partition(partition)
        bounds = self.bounds()
        if not 0 <= start <= end:
            raise BadRequest("range", f"from {start} up to {end}")
        if start < bounds.horizon:
            raise OffsetBelowHorizon(start, bounds.horizon)
        if end > bounds.end:
            raise OffsetPastEnd(end, bounds.end)


def _columns(names: Sequence[str] | None) -> Sequence[str]:
    if names is None:
        return _COLUMNS
    for name in names:
        if name not in _COLUMNS:
            raise BadRequest(f"column {name!r}", f"there are {', '.join(_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise BadRequest("columns", "there is none, or one is there twice")
    return names


def _selection(request: ReadRange | Splits, principal: Principal) -> Selection:
    """Return what is wanted, as far as a principal may have it.

    Raise NotAllowed for topics and patterns that it may not, or InvalidPattern; of an expression it
    gets those topics that it may.
    """
    asked = [*(request.topics or ()), *(request.patterns or ())]
    if request.topics is None and request.patterns is None and request.expression is None:
        asked = [_EVERYTHING]
    for text in asked:
        if not principal.may(Action.SUBSCRIBE, text):
            raise NotAllowed(principal.name, Action.SUBSCRIBE, text)
    if request.expression is not None:
        try:
            re.compile(request.expression)
        except re.error as error:
            raise BadRequest(f"expression {request.expression[:200]!r}", str(error)) from None
    tests: tuple[TopicTest, ...] = ()
    if request.expression is not None and (principal.rules or not principal.default):
        tests = (_Permitted(principal=principal),)
    topics = None if request.topics is None else frozenset(request.topics)
    patterns = None
    if request.patterns is not None:
        wild = {text for text in request.patterns if compile_pattern(text) is not None}
        patterns = tuple(wild)
        topics = (topics or frozenset()) | (set(request.patterns) - wild)
    if isinstance(request, Splits):
        return Selection(topics, patterns, request.expression, tests=tests)
    return Selection(
        topics,
        patterns,
        request.expression,
        tests=tests,
        protocols=_words("protocols", request.protocols, PROTOCOLS),
        kinds=_words("kinds", request.kinds, KINDS),
        since_us=request.since_us,
        until_us=request.until_us,
    )


@dataclasses.dataclass(frozen=True)
class _Permitted(TopicTest):
    """A test of topics: whether a principal may read them."""

    test: str = "permitted"
    text: str = ""
    principal: Principal = ANYONE

    def __call__(self, name: str) -> bool:
        return self.principal.may(Action.SUBSCRIBE, name)


def _words(key: str, words: Sequence[str] | None, known: Sequence[str]) -> frozenset[str] | None:
    if words is None:
        return None
    for word in words:
        if word not in known:
            raise BadRequest(f"{key}: {word!r}", f"expected {', '.join(known)}")
    return frozenset(words)


# --- Batches


def _shaped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns of a schema, plain or with wide dictionaries."""
    plain = Plain()
    wide = any(pa.types.is_dictionary(field.type) for field in schema)
    for batch in batches:
        if not len(batch):
            continue
        if wide:
            columns = [_wide(batch.column(field.name), field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        else:
            yield from plain.parts(batch.select(schema.names))


def _wide(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column
    indices = column.indices.cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary)


def _coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together; those before an error are given first."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            batch_bytes = batch.nbytes
            if waiting and (
                rows + len(batch) > RECORDS_ROWS_MAX or size + batch_bytes > RECORDS_BYTES_MAX
            ):
                yield _one(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(batch)
            rows += len(batch)
            size += batch_bytes
    except (LogError, OSError):
        if waiting:
            yield _one(waiting)
        raise
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
