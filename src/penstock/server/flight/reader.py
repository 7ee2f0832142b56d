"""Reads ranges for Flight calls, in the threads of the calls."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from penstock.core.access import ANYONE, EVERYTHING, Action, Principal, authorize, is_allowed
from penstock.errors import LogError, LogReplaced, NotAllowed, OffsetPastEnd
from penstock.flight.errors import BadRequest
from penstock.flight.protocol import (
    Bounds,
    CommitGroup,
    Match,
    Matched,
    OffsetAt,
    OffsetRange,
    ReadRange,
    Splits,
)
from penstock.limits import FLIGHT_SPLITS_MAX, RECORDS_BYTES_MAX, RECORDS_ROWS_MAX
from penstock.patterns import canonical_pattern
from penstock.ports import Bounds as StoredBounds
from penstock.ports import PartitionRange, Storage, Subscription
from penstock.ports.expressions import check_expression
from penstock.ports.selection import Selection, TopicTest
from penstock.storage.dictionaries import RECORD_SCHEMA, DictionaryDecoder
from penstock.storage.schema import KINDS, PROTOCOLS, RECORD_COLUMNS, SCHEMA

__all__ = ["FlightReader"]

_COLUMNS: Final = tuple(SCHEMA.names[:RECORD_COLUMNS])
_WIDE_SCHEMA: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), field.type.value_type))
        if pa.types.is_dictionary(field.type)
        else field
        for field in list(SCHEMA)[:RECORD_COLUMNS]
    ]
)
"""Columns of a record with dictionary indices wide enough for those of many row groups."""


class FlightReader:
    """Reads the storage for Flight calls. Any thread may call."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def bounds(self) -> dict[int, Bounds]:
        """Return the readable offsets of each partition."""
        found = self._storage.bounds()
        log = self._log
        return {partition: Bounds(each.horizon, each.end, log) for partition, each in found.items()}

    def offsets(self) -> Mapping[int, StoredBounds]:
        """Return the readable offsets of each partition, without the log's id."""
        return self._storage.bounds()

    @property
    def _log(self) -> str:
        return f"{self._storage.log_id:012x}"

    def topics(self, principal: Principal) -> list[str]:
        """Return the topics of stored messages that a principal may read.

        The empty name stands for messages without a topic, for those that may read everything.
        """
        names = self._storage.stored_topics()
        return sorted(
            name for name in names if is_allowed(principal, Action.SUBSCRIBE, name or EVERYTHING)
        )

    def offset_at(self, request: OffsetAt) -> int:
        """Return the first offset taken at or after a time, or the end."""
        self._check_partition(request.partition)
        return self._storage.offset_at(request.partition, request.timestamp_us)

    def splits(self, request: Splits, principal: Principal) -> list[OffsetRange]:
        """Divide a range into parts of about the same size that meet between row groups."""
        span = self._span(request)
        if not 0 < request.count <= FLIGHT_SPLITS_MAX:
            problem = f"count is {request.count}, allowed are 1 to {FLIGHT_SPLITS_MAX}"
            raise BadRequest("splits", problem)
        selection = _selection(request, principal)
        parts = self._storage.split(span, selection, count=request.count)
        return [OffsetRange(part.start, part.end) for part in parts]

    def match(self, request: Match, principal: Principal) -> Matched:
        """Count the messages of a range with certain topics, and find their end."""
        self._check_log(request.log)
        span = self._span(request)
        if request.rows_max is not None and request.rows_max <= 0:
            raise BadRequest("match", f"rows_max is {request.rows_max}, expected 1 or more")
        selection = _selection(request, principal)
        found = self._storage.match(span, selection, rows_max=request.rows_max)
        return Matched(found.end, found.rows, found.first)

    @staticmethod
    def subscription(request: CommitGroup, principal: Principal) -> Subscription | None:
        """Return the topics that a group reads, None for all.

        Raise NotAllowed for topics that the principal may not read: lag counts their messages. A
        regular expression is kept only for a principal that may read everything.
        """
        if request.topics is None and request.patterns is None and request.expression is None:
            return None
        _selection(request, principal)
        if request.expression is not None and (principal.rules or not principal.default):
            return None
        return Subscription(
            None if request.topics is None else tuple(request.topics),
            None if request.patterns is None else tuple(request.patterns),
            request.expression,
        )

    def read(
        self,
        request: ReadRange,
        principal: Principal,
        *,
        reading: Callable[[int], None] | None = None,
        paced: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the record batches of a range.

        Raise errors that are known in advance at once, others while batches are read. `reading` is
        called with the size of each buffer before it is allocated. `paced` yields the batches of
        row groups, and may pause between them.
        """
        self._check_log(request.log)
        span = self._span(request)
        columns = _columns(request.columns)
        selection = _selection(request, principal)
        fields = _WIDE_SCHEMA if request.dictionaries else RECORD_SCHEMA
        schema = pa.schema([fields.field(name) for name in columns])
        found = self._storage.scan(span, selection, columns=columns, reading=reading)
        return schema, _coalesced(_shaped(paced(found), schema))

    @staticmethod
    def while_allowed(
        batches: Iterator[pa.RecordBatch], request: ReadRange, principal: Principal
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches; raise NotAllowed if the rules change and forbid the range.

        A range by `expression` ends at any change: its topics were selected by the old rules.
        """
        rights = principal.rights
        for batch in batches:
            if principal.rights is not rights:
                if request.expression is not None:
                    raise NotAllowed(principal.name, Action.SUBSCRIBE, request.expression)
                _selection(request, principal)
                rights = principal.rights
            yield batch

    def _span(self, request: ReadRange | Splits | Match) -> PartitionRange:
        """Return the range of a request; raise BadRequest or OffsetPastEnd.

        The storage knows whether messages below the horizon are lost to the request.
        """
        self._check_partition(request.partition)
        if not 0 <= request.start <= request.end:
            raise BadRequest("range", f"from {request.start} up to {request.end}")
        bounds = self._storage.bounds()[request.partition]
        if request.end > bounds.end:
            raise OffsetPastEnd(request.end, bounds.end)
        return PartitionRange(request.partition, request.start, request.end)

    def _check_log(self, log: str) -> None:
        """Raise LogReplaced if a request names another log."""
        if log and log != self._log:
            raise LogReplaced(log, self._log)

    def _check_partition(self, partition: int) -> None:
        known = self._storage.partitions
        if partition not in known:
            only = ", ".join(map(str, known))
            raise BadRequest("partition", f"there is no partition {partition}, only {only}")


def _columns(names: Sequence[str] | None) -> Sequence[str]:
    if names is None:
        return _COLUMNS
    for name in names:
        if name not in _COLUMNS:
            raise BadRequest(f"column {name!r}", f"there are {', '.join(_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise BadRequest("columns", "there is none, or one is there twice")
    return names


def _selection(
    request: ReadRange | Splits | Match | CommitGroup, principal: Principal
) -> Selection:
    """Return the selection of a request, limited to what a principal may read.

    Raise NotAllowed for topics and patterns that it may not read, or InvalidPattern. A regular
    expression selects only topics that it may read.
    """
    asked = [*(request.topics or ()), *(request.patterns or ())]
    if request.topics is None and request.patterns is None and request.expression is None:
        asked = [EVERYTHING]
    for text in asked:
        authorize(principal, Action.SUBSCRIBE, text)
    if request.expression is not None:
        try:
            check_expression(request.expression)
        except ValueError as error:
            raise BadRequest(f"expression {request.expression[:200]!r}", str(error)) from None
    tests: tuple[TopicTest, ...] = ()
    if request.expression is not None and (principal.rules or not principal.default):
        tests = (_Permitted(principal=principal),)
    topics = None if request.topics is None else frozenset(request.topics)
    patterns = None
    if request.patterns is not None:
        wild = {text for text in request.patterns if canonical_pattern(text).levels is not None}
        patterns = tuple(wild)
        topics = (topics or frozenset()) | (set(request.patterns) - wild)
    if isinstance(request, Splits | Match | CommitGroup):
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
    """Tests whether a principal may read a topic."""

    test: str = "permitted"
    text: str = ""
    principal: Principal = ANYONE

    def __call__(self, name: str) -> bool:
        return is_allowed(self.principal, Action.SUBSCRIBE, name)


def _words(key: str, words: Sequence[str] | None, known: Sequence[str]) -> frozenset[str] | None:
    if words is None:
        return None
    for word in words:
        if word not in known:
            raise BadRequest(f"{key}: {word!r}", f"expected {', '.join(known)}")
    return frozenset(words)


# --- Batches


def _shaped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns of a schema, plain or as dictionaries."""
    plain = DictionaryDecoder()
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
    """Concatenate small batches; before an error, yield those that were read."""
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
