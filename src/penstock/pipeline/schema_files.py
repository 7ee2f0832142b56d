"""Schema files of silver tables, and the decoders of payloads that need one.

Workers of Spark decode: `decode_batches` returns a function that carries the contents of the files,
so only the driver needs them.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from penstock.limits import PIPELINE_SCHEMA_FILE_BYTES_MAX
from penstock.pipeline.config import RegistryConfig, SilverConfig
from penstock.pipeline.registry import SchemaProblem, registry_of

__all__ = ["SCHEMA_FORMATS", "decode_batches", "decoder", "missing_package", "read_schema_file"]

SCHEMA_FORMATS: Final = ("avro", "protobuf")
"""Formats whose payloads cannot be decoded without a schema."""
_PACKAGES: Final = {"avro": "fastavro", "protobuf": "google.protobuf"}


class Decoder(Protocol):
    """Decodes payloads to JSON text."""

    def to_json(self, value: bytes) -> bytes:
        """Return a payload as JSON; raise SchemaProblem or RegistryFailed."""


def missing_package(name: str) -> bool:
    """Return whether the package that decodes a format is not installed."""
    try:
        __import__(_PACKAGES.get(name, "penstock"))
    except ImportError:
        return True
    return False


@functools.lru_cache(maxsize=256)
def read_schema_file(path: str) -> bytes:
    """Return the contents of a file, read once by a process; raise OSError or SchemaProblem."""
    with Path(path).open("rb") as file:
        found = file.read(PIPELINE_SCHEMA_FILE_BYTES_MAX + 1)
    if len(found) > PIPELINE_SCHEMA_FILE_BYTES_MAX:
        raise SchemaProblem(f"has more than {PIPELINE_SCHEMA_FILE_BYTES_MAX} bytes")
    return found


def decoder(
    name: str, schema: bytes, writer: bytes, message: str, registry: RegistryConfig | None
) -> Decoder:
    """Return the decoder of a format; raise SchemaProblem."""
    schemas = None if registry is None else registry_of(registry)
    # Each format needs a package that is not always installed.
    if name == "avro":
        from penstock.pipeline.avro import AvroDecoder  # noqa: PLC0415

        reader = _text(schema)
        if schemas is not None:
            return AvroDecoder(None, reader, schemas)
        return AvroDecoder(_text(writer) or reader, reader if writer else None, None)
    from penstock.pipeline.protobuf import ProtobufDecoder  # noqa: PLC0415

    return ProtobufDecoder(schema, message, schemas)


def _text(data: bytes) -> str | None:
    try:
        return data.decode() if data else None
    except UnicodeDecodeError:
        raise SchemaProblem("no Avro schema: it is not UTF-8") from None


def decode_batches(
    schema: SilverConfig, registry: RegistryConfig
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that appends the columns `text` and `problem`."""
    given = (
        schema.format,
        read_schema_file(schema.schema_file) if schema.schema_file else b"",
        read_schema_file(schema.writer_schema_file) if schema.writer_schema_file else b"",
        schema.message,
        registry if schema.registry else None,
    )

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if given[4] is not None:
            registry_of(given[4]).begin()
        made = decoder(*given)
        for batch in batches:
            texts: list[bytes | None] = []
            problems: list[str | None] = []
            for value in batch.column("value").to_pylist():
                text, problem = _decoded(made, value)
                texts.append(text)
                problems.append(problem)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(texts, pa.utf8()), pa.array(problems, pa.utf8())],
                names=[*batch.schema.names, "text", "problem"],
            )

    return decode


def _decoded(made: Decoder, value: bytes | None) -> tuple[bytes | None, str | None]:
    if value is None:
        return None, "there is no value"
    try:
        return made.to_json(value), None
    except SchemaProblem as problem:
        return None, str(problem)
