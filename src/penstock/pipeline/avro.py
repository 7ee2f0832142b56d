"""Avro payloads, converted to JSON text; `fastavro` decodes them."""

import io
import struct
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import fastavro
import msgspec

from penstock.pipeline.messagepack import finite
from penstock.pipeline.registry import RegisteredSchema, Registry, SchemaProblem, split_header

__all__ = ["AvroDecoder", "parse_named", "parse_schema"]

Schema: TypeAlias = Any
_MALFORMED: Final = (
    ValueError, LookupError, EOFError, TypeError, ArithmeticError, AttributeError, struct.error,
    fastavro.read.SchemaResolutionError,
)  # fmt: skip
"""Errors of fastavro for bytes that do not fit their schema."""
_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)


def parse_schema(text: str, references: tuple[tuple[str, str], ...] = ()) -> Schema:
    """Return the schema of a text; raise SchemaProblem."""
    return parse_named(text, references)[0]


def parse_named(
    text: str, references: tuple[tuple[str, str], ...] = ()
) -> tuple[Schema, dict[str, Schema]]:
    """Return the schema of a text and its named types; raise SchemaProblem.

    A type that contains itself is refused: fastavro would decode it with unlimited recursion. So is
    an array whose items have no bytes: a few bytes would make any number of them.
    """
    named: dict[str, Schema] = {}
    try:
        for _, reference in references:
            fastavro.parse_schema(msgspec.json.decode(reference), named_schemas=named)
        schema = fastavro.parse_schema(msgspec.json.decode(text), named_schemas=named)
    except (*_MALFORMED, fastavro.schema.SchemaParseException, RecursionError) as error:
        raise SchemaProblem(f"no Avro schema: {_reason(error)}") from None
    _least_bytes(schema, named, ())
    return schema, named


def _least_bytes(schema: Schema, named: Mapping[str, Schema], outer: tuple[str, ...]) -> int:
    """Return whether a value has at least one byte, as 0 or 1; raise SchemaProblem."""
    if isinstance(schema, list):
        for each in schema:
            _least_bytes(each, named, outer)
        return 1
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return int(schema != "null")
        if schema in outer:
            raise SchemaProblem(f"the Avro type {schema} contains itself, which is not supported")
        return _least_bytes(named[schema], named, outer)
    match schema["type"]:
        case "record" | "error":
            name = schema["name"]
            if name in outer:
                raise SchemaProblem(f"the Avro type {name} contains itself, which is not supported")
            inner = (*outer, name)
            return max(
                (_least_bytes(each["type"], named, inner) for each in schema["fields"]), default=0
            )
        case "array":
            if not _least_bytes(schema["items"], named, outer):
                raise SchemaProblem("an Avro array has items without bytes, which is not supported")
            return 1
        case "map":
            _least_bytes(schema["values"], named, outer)
            return 1
        case "fixed":
            return min(1, int(schema["size"]))
        case "enum":
            return 1
        case inner:
            return _least_bytes(inner, named, outer)


class AvroDecoder:
    """Decodes payloads to JSON text.

    `writer` is the schema that payloads were written with, None if it is in the registry by the id
    in front of each payload. `reader` is the schema of the result, by Avro's rules of resolution;
    by default it is the writer's.
    """

    def __init__(self, writer: str | None, reader: str | None, registry: Registry | None) -> None:
        self._writer = None if writer is None else parse_schema(writer)
        self._reader = None if reader is None else parse_schema(reader)
        self._registry = registry
        self._parsed: dict[RegisteredSchema, Schema] = {}

    def to_json(self, value: bytes) -> bytes:
        """Return a payload as JSON; raise SchemaProblem or RegistryFailed.

        Bytes are base64 text, decimals text, times ISO 8601 text.
        """
        schema: Schema = self._writer
        if self._registry is not None:
            identifier, value = split_header(value)
            schema = self._registered(self._registry, identifier)
        stream = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, schema, self._reader)
            text = msgspec.json.encode(found)
            if b"null" in text:  # JSON has no number for NaN
                text = msgspec.json.encode(finite(found))
        except _MALFORMED as error:
            raise SchemaProblem(f"no Avro of this schema: {_reason(error)}") from None
        left = len(value) - stream.tell()
        if left:
            raise SchemaProblem(f"no Avro of this schema: {left} bytes follow the value")
        return text

    def _registered(self, registry: Registry, identifier: int) -> Schema:
        found = registry.schema(identifier)
        if found not in self._parsed:
            if found.kind != "AVRO":
                raise SchemaProblem(f"schema {identifier} is of type {found.kind}, not AVRO")
            self._parsed[found] = parse_schema(found.text, found.references)
        return self._parsed[found]


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
