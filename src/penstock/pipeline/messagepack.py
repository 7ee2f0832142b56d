"""Conversion of MessagePack values to JSON text, a batch at a time.

    row 0      marker    row 1      marker    …
    ─────────  ────────  ─────────  ────────
    any bytes  16 bytes  any bytes  16 bytes

All values of a batch are joined to one MessagePack array, with a marker of random bytes after each
value, and decoded by one call. A truncated value consumes its marker, and a value with trailing
bytes shifts the markers: in both cases a marker is not at its place. Then the batch is halved until
each invalid value is alone.
"""

import math
import os
import re
import sys
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import WireError
from penstock.protocols.fleximq import (
    FLEXIMQ_MESSAGE_BYTES_MAX,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
)
from penstock.wire import messagepack

__all__ = ["finite", "json_batches", "sequence_batches", "to_json"]

_ARRAY: Final = b"\xdd"
_BIN: Final = b"\xc4\x10"
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]", re.DOTALL)
"""The first bytes of floats that may be NaN or infinite, for which JSON has no number."""


def to_json(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return (JSON text, error) of MessagePack values; one of the two is null in each row.

    A null value is an error. Bytes become base64 text, times become ISO 8601 text.
    """
    texts: list[pa.Array] = []
    errors: list[pa.Array] = []
    for part_texts, part_errors in _parts(values):
        texts.append(part_texts)
        errors.append(part_errors)
    if not texts:
        return pa.array([], pa.utf8()), pa.array([], pa.utf8())
    return pa.concat_arrays(texts), pa.concat_arrays(errors)


def json_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append the columns `text` and `problem` to batches; a function for `mapInArrow`."""
    for batch in batches:
        text, problem = to_json(batch.column("value"))
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, text, problem], names=[*batch.schema.names, "text", "problem"]
        )


def sequence_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the same for payloads of several MessagePack values; the text is an array of them."""
    for batch in batches:
        found = [_sequence_to_array(each.as_py()) for each in batch.column("value")]
        arrays, faults = ([each[place] for each in found] for place in (0, 1))
        text, problem = to_json(pa.array(arrays, pa.binary()))
        problem = pc.coalesce(pa.array(faults, pa.utf8()), problem)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, text, problem], names=[*batch.schema.names, "text", "problem"]
        )


def _sequence_to_array(data: bytes | None) -> tuple[bytes | None, str | None]:
    """Return a sequence of MessagePack values as a MessagePack array, or its problem."""
    if data is None:
        return None, None
    position = count = 0
    try:
        while position < len(data):
            count += 1
            position = messagepack.measure(
                data,
                position,
                depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING,
                elements_max=sys.maxsize,
                string_bytes_max=FLEXIMQ_MESSAGE_BYTES_MAX,
            )
    except WireError as error:
        return None, f"no MessagePack: {error}"
    return b"".join((_ARRAY, count.to_bytes(4, "big"), data)), None


def finite(value: object) -> object:
    """Return a value with text in place of floats that are NaN or infinite."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [finite(each) for each in value]
        case dict():
            return {name: finite(each) for name, each in value.items()}
    return value


def _parts(values: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    if not len(values):
        return
    found = None if values.null_count else _decoded(values)
    if found is not None:
        yield found, pa.nulls(len(values), pa.utf8())
    elif len(values) == 1:
        yield pa.nulls(1, pa.utf8()), pa.array([_problem(values[0].as_py())], pa.utf8())
    else:
        middle = len(values) // 2
        yield from _parts(values.slice(0, middle))
        yield from _parts(values.slice(middle))


def _decoded(values: pa.Array) -> pa.Array | None:
    """Return the JSON text of values, None if any of them is invalid."""
    marker = os.urandom(16)
    joined = pc.binary_join_element_wise(values, pa.scalar(_BIN + marker, values.type), b"")
    _, offsets, data = joined.buffers()
    ends = memoryview(offsets).cast("i")[joined.offset : joined.offset + len(joined) + 1]
    body = memoryview(data)[ends[0] : ends[-1]]
    try:
        found = msgspec.msgpack.decode(
            b"".join((_ARRAY, (2 * len(values)).to_bytes(4, "big"), body)), type=list[object]
        )
        if found[1::2] != [marker] * len(values):
            return None
        rows = found[::2]
        if _NOT_FINITE.search(body):
            rows = [finite(each) for each in rows]
        lines = msgspec.json.Encoder().encode_lines(rows)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    text = pc.split_pattern(pa.array([lines.removesuffix(b"\n")], pa.utf8()), "\n")
    return text.flatten().cast(pa.utf8())


def _problem(value: bytes | None) -> str:
    if value is None:
        return "no MessagePack: there is no value"
    try:
        messagepack.decode(
            value,
            depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING,
            elements_max=sys.maxsize,
            string_bytes_max=FLEXIMQ_MESSAGE_BYTES_MAX,
        )
    except WireError as error:
        return f"no MessagePack: {error}"
    return "no MessagePack that JSON has text for"
