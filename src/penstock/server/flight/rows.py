"""Checks the rows that a sink receives, and converts them to ROWS_SCHEMA."""

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as pf

from penstock.flight.errors import BadRequest, BadRows
from penstock.flight.protocol import SINK_SCHEMA, Staged
from penstock.limits import (
    MESSAGE_HEADERS_BYTES_MAX,
    MESSAGE_HEADERS_MAX,
    SINK_EXPANDED_BYTES_MAX,
    SINK_KEY_BYTES_MAX,
    SINK_NAMES_CHECKED_BYTES_MAX,
    SINK_SCHEMA_BYTES_MAX,
    SINK_VALUE_BYTES_MAX,
)
from penstock.model import RESERVED_HEADER_PREFIX
from penstock.server.flight.calls import WorkLimit
from penstock.storage.rows import check_column
from penstock.storage.schema import ROWS_SCHEMA
from penstock.topic_names import check_topic_name

__all__ = ["RowCheck", "check_columns", "expanded_bytes", "whole"]

_NEEDED = ("topic", "value")
_ACCEPTED = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_struct,
    pa.types.is_map,
)


def check_columns(schema: pa.Schema) -> None:
    """Raise BadRows unless these are the columns of a sink."""
    size = schema.serialize().size
    if size > SINK_SCHEMA_BYTES_MAX:
        problem = f"the schema has {size} bytes, allowed are {SINK_SCHEMA_BYTES_MAX}"
        raise BadRows("?", problem)
    try:
        names = schema.names
    except UnicodeDecodeError:
        raise BadRows("?", "its name is not UTF-8") from None
    for name in _NEEDED:
        if name not in names:
            raise BadRows(name, "there is no such column; topic and value are needed")
    for field in schema:
        if field.name not in SINK_SCHEMA.names:
            raise BadRows(field.name, f"expected {', '.join(SINK_SCHEMA.names)}")
    if len(set(schema.names)) != len(schema.names):
        raise BadRows(schema.names[0], "a column is there twice")
    topic = schema.field("topic").type
    if pa.types.is_null(topic):
        raise BadRows("topic", f"expected {SINK_SCHEMA.field('topic').type}, got {topic}")
    for field in schema:
        if _is_refused(field.type):
            kind = SINK_SCHEMA.field(field.name).type
            raise BadRows(field.name, f"expected {kind}, got {field.type}")


def whole(reader: pf.MetadataRecordBatchReader, work: WorkLimit) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a DoPut; raise BadRequest unless its last message confirms their number.

    Flight cannot tell the end of the rows from the death of the client. Raise BadRows for damaged
    columns: Flight does not check the values of a record batch.
    """
    rows = 0
    announced: int | None = None
    for chunk in _chunks(reader):
        if chunk.data is not None:
            with work:
                _check_values(chunk.data)
            rows += len(chunk.data)
            yield chunk.data
        if chunk.app_metadata is not None:
            try:
                announced = msgspec.json.decode(chunk.app_metadata.to_pybytes(), type=Staged).rows
            except msgspec.MsgspecError as error:
                raise BadRequest("the metadata of rows", str(error)) from None
    if announced is None:
        raise BadRequest("rows", f"they end behind {rows} without a message of how many they are")
    if announced != rows:
        raise BadRequest("rows", f"{rows} came of {announced}")


def _chunks(reader: pf.MetadataRecordBatchReader) -> Iterator[pf.FlightStreamChunk]:
    """Yield the messages of a DoPut; raise BadRequest for one that is not Arrow IPC."""
    try:
        yield from reader
    except pf.FlightError:
        raise
    except pa.ArrowException as error:
        raise BadRequest("rows", str(error)[:200]) from None


def _check_values(batch: pa.RecordBatch) -> None:
    """Raise BadRows unless every value of every column is whole."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            check_column(column, len(batch))
        except ValueError as error:
            raise BadRows(name, str(error)) from None


class RowCheck:
    """Converts batches to rows of ROWS_SCHEMA; `check_topic` raises for forbidden topics."""

    def __init__(self, check_topic: Callable[[str], None]) -> None:
        self._check_allowed = check_topic
        self._allowed: set[str] = set()
        self._allowed_bytes = 0

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of ROWS_SCHEMA.

        Raise BadRows, InvalidTopicName, or the error of `check_topic`.
        """
        count = len(batch)
        topic = _cast(batch, "topic")
        if topic.null_count:
            raise BadRows("topic", f"{topic.null_count} of {count} rows have none")
        for name in pc.unique(topic).to_pylist():
            self._check_topic(name)
        value = _cast(batch, "value")
        if value.null_count:
            problem = f"{value.null_count} of {count} rows have none; an empty value is possible"
            raise BadRows("value", problem)
        longest = pc.max(pc.binary_length(value)).as_py() or 0
        if longest > SINK_VALUE_BYTES_MAX:
            problem = f"one has {longest} bytes, allowed are {SINK_VALUE_BYTES_MAX}"
            raise BadRows("value", problem)
        key = _cast(batch, "key") if "key" in batch.schema.names else pa.nulls(count, pa.binary())
        longest = pc.max(pc.binary_length(key)).as_py() or 0
        if longest > SINK_KEY_BYTES_MAX:
            raise BadRows("key", f"one has {longest} bytes, allowed are {SINK_KEY_BYTES_MAX}")
        return pa.RecordBatch.from_arrays([topic, value, key, _headers(batch)], schema=ROWS_SCHEMA)

    def _check_topic(self, name: str) -> None:
        if name in self._allowed:
            return
        check_topic_name(name)
        size = len(name.encode())
        self._check_allowed(name)
        self._allowed_bytes += size
        if self._allowed_bytes > SINK_NAMES_CHECKED_BYTES_MAX:
            self._allowed.clear()
            self._allowed_bytes = size
        self._allowed.add(name)


def _cast(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    kind = SINK_SCHEMA.field(name).type
    if column.type == kind:
        return column
    _check_expansion(name, column, len(batch))
    try:
        return pc.cast(column, kind)
    except pa.ArrowException:
        raise BadRows(name, f"expected {kind}, got {column.type}") from None


def _is_refused(kind: pa.DataType) -> bool:
    """Tell whether a type is none of those that a sink may send, at any level.

    A few bytes of run-end encoding and of views can have any number of rows, Arrow casts views of
    null values without a check of where they point, and it crashes on a union without fields.
    """
    if pa.types.is_dictionary(kind):
        return _is_refused(kind.value_type)
    return not any(is_one(kind) for is_one in _ACCEPTED) or any(
        _is_refused(kind.field(each).type) for each in range(kind.num_fields)
    )


def expanded_bytes(batch: pa.RecordBatch) -> int:
    """Return the memory that a whole batch needs without dictionaries, about; raise BadRows."""
    sizes = {
        name: _expanded_bytes(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    size = sum(sizes.values())
    if size > SINK_EXPANDED_BYTES_MAX:
        problem = f"expanded the rows have {size} bytes, allowed are {SINK_EXPANDED_BYTES_MAX}"
        raise BadRows(max(sizes, key=sizes.__getitem__), f"{problem}: send fewer at a time")
    return size


def _expanded_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_dictionary(kind) and _has_length(kind.value_type):
        return int(column.nbytes) + _words_bytes(column)
    if _has_entries(kind):
        return int(column.nbytes) + _expanded_bytes(column.values)
    if pa.types.is_struct(kind):
        return sum(_expanded_bytes(column.field(each)) for each in range(kind.num_fields))
    return int(column.nbytes)


def _words_bytes(column: pa.DictionaryArray) -> int:
    """Return the bytes of all rows of a column of words, without the dictionary."""
    sizes = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    size: int = pc.sum(pc.take(sizes, column.indices)).as_py() or 0
    return size


def _check_expansion(name: str, column: pa.Array, count: int) -> None:
    """Raise BadRows if a cast would need far more memory than the column has bytes."""
    kind = column.type
    if pa.types.is_dictionary(kind) and _has_length(kind.value_type):
        size = _words_bytes(column)
        if size > SINK_EXPANDED_BYTES_MAX:
            problem = f"expanded it has {size} bytes, allowed are {SINK_EXPANDED_BYTES_MAX}"
            raise BadRows(name, problem)
    elif _has_entries(kind):
        entries = column.values
        if len(entries) > count * MESSAGE_HEADERS_MAX:
            problem = f"{len(entries)} of {count} rows, allowed are {MESSAGE_HEADERS_MAX} of each"
            raise BadRows(name, problem)
        _check_expansion(name, entries, count)
    elif pa.types.is_struct(kind):
        for each in range(kind.num_fields):
            _check_expansion(name, column.field(each), count)


def _has_length(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _has_entries(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_map(kind)
    )


def _headers(batch: pa.RecordBatch) -> pa.Array:
    """Return the headers of all rows, without nulls at any level."""
    kind = ROWS_SCHEMA.field("headers").type
    if "headers" not in batch.schema.names:
        zeros = pa.repeat(pa.scalar(0, pa.int32()), len(batch) + 1)
        return pa.ListArray.from_arrays(zeros, pa.array([], kind.value_type), type=kind)
    column = _cast(batch, "headers")
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    most = pc.max(lengths).as_py() or 0
    if most > MESSAGE_HEADERS_MAX:
        raise BadRows("headers", f"a row has {most}, allowed are {MESSAGE_HEADERS_MAX}")
    entries = pc.list_flatten(column)
    keys, values = (pc.struct_field(entries, name) for name in ("key", "value"))
    if keys.null_count or values.null_count:
        raise BadRows("headers", "a header is null, or its key or value is; use empty ones")
    if pc.any(pc.starts_with(keys, RESERVED_HEADER_PREFIX)).as_py():
        raise BadRows("headers", f"names that begin with {RESERVED_HEADER_PREFIX} are the broker's")
    longest = pc.max(pc.add(pc.binary_length(keys), pc.binary_length(values))).as_py() or 0
    if longest * most > MESSAGE_HEADERS_BYTES_MAX and _largest(lengths, keys, values) > (
        MESSAGE_HEADERS_BYTES_MAX
    ):
        raise BadRows("headers", f"those of a row have more than {MESSAGE_HEADERS_BYTES_MAX} bytes")
    ends = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cast(pc.cumulative_sum(lengths), pa.int32())]
    )
    struct = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(ends, struct, type=kind)


def _largest(lengths: pa.Array, keys: pa.Array, values: pa.Array) -> int:
    """Return the size of the largest headers of a row, in bytes."""
    sizes = pc.cast(pc.add(pc.binary_length(keys), pc.binary_length(values)), pa.int64())
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    last = pc.cast(pc.cumulative_sum(lengths), pa.int64())
    first = pc.subtract(last, pc.cast(lengths, pa.int64()))
    largest: int = pc.max(pc.subtract(pc.take(ends, last), pc.take(ends, first))).as_py() or 0
    return largest
