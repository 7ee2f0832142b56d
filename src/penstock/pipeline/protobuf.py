"""Protobuf payloads, converted to JSON text; the `protobuf` package decodes them."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from penstock.pipeline.registry import RegisteredSchema, Registry, SchemaProblem, split_header

__all__ = ["ProtobufDecoder", "message_descriptor"]

_INDEXES_MAX: Final = 32
"""Message types around a message type."""
_VARINT_BITS_MAX: Final = 35


def message_descriptor(schema: bytes, name: str) -> Descriptor:
    """Return a message type of a serialized FileDescriptorSet; raise SchemaProblem."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema).file
    except DecodeError:
        files = ()
    if not files:
        problem = "no FileDescriptorSet; write one: protoc --include_imports --descriptor_set_out"
        raise SchemaProblem(problem)
    pool = _pool(files)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = sorted(
            ".".join(filter(None, (file.package, message.name)))
            for file in files
            for message in file.message_type
            if file.package != "google.protobuf"
        )
        raise SchemaProblem(f"no message {name}; there are: {', '.join(known)}") from None


def _pool(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Return a pool of files in any order, and of those that the protobuf package has."""
    given = {file.name: file for file in files}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str, outer: tuple[str, ...]) -> None:
        if name in added:
            return
        if name in outer:
            raise SchemaProblem(f"no Protobuf schema: {name} imports itself")
        file = given.get(name) or _known_file(name)
        for each in file.dependency:
            add(each, (*outer, name))
        try:
            pool.Add(file)
        except (TypeError, ValueError) as error:
            raise SchemaProblem(f"no Protobuf schema: {str(error).splitlines()[0]}") from None
        added.add(name)

    for name in given:
        add(name, ())
    return pool


def _known_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file of the protobuf package, such as google/protobuf/timestamp.proto."""
    # Imported for their entries in the default pool.
    from google.protobuf import (  # noqa: PLC0415
        any_pb2,  # noqa: F401
        duration_pb2,  # noqa: F401
        empty_pb2,  # noqa: F401
        field_mask_pb2,  # noqa: F401
        struct_pb2,  # noqa: F401
        timestamp_pb2,  # noqa: F401
        wrappers_pb2,  # noqa: F401
    )

    found = descriptor_pb2.FileDescriptorProto()
    try:
        descriptor_pool.Default().FindFileByName(name).CopyToProto(found)
    except KeyError:
        raise SchemaProblem(
            f"no Protobuf schema: {name} is imported and missing; use protoc --include_imports"
        ) from None
    return found


class ProtobufDecoder:
    """Decodes payloads to JSON text.

    `message` is a type of `schema`, a serialized FileDescriptorSet. With a registry, an id and
    indexes are in front of each payload; without a `schema` they name schema and type.
    """

    def __init__(self, schema: bytes, message: str, registry: Registry | None) -> None:
        self._type: type[Message] | None = None
        if schema:
            self._type = message_factory.GetMessageClass(message_descriptor(schema, message))
        self._registry = registry
        self._files: dict[RegisteredSchema, FileDescriptor] = {}

    def to_json(self, value: bytes) -> bytes:
        """Return a payload as JSON, by Protobuf's rules; raise SchemaProblem or RegistryFailed.

        Names of fields are those of the schema. Fields without presence have their defaults.
        """
        kind = self._type
        if self._registry is not None:
            identifier, value = split_header(value)
            indexes, value = _indexes(value)
            if kind is None:
                file = self._registered(self._registry, identifier)
                kind = message_factory.GetMessageClass(_message(file, indexes))
        assert kind is not None, "a schema or a registry is checked"  # noqa: S101
        try:
            found = kind.FromString(value)
            if not found.IsInitialized():
                names = ", ".join(found.FindInitializationErrors())
                raise SchemaProblem(f"no Protobuf of this schema: {names} missing")
            return msgspec.json.encode(_to_dict(found))
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise SchemaProblem(f"no Protobuf of this schema: {lines[0]}") from None

    def _registered(self, registry: Registry, identifier: int) -> FileDescriptor:
        found = registry.schema(identifier, serialized=True)
        if found not in self._files:
            if found.kind != "PROTOBUF":
                raise SchemaProblem(f"schema {identifier} is of type {found.kind}, not PROTOBUF")
            files = [_file(text, name) for name, text in found.references]
            last = _file(found.text, "")
            last.name = last.name or f"schema-{identifier}.proto"
            self._files[found] = _pool([*files, last]).FindFileByName(last.name)
        return self._files[found]


def _to_dict(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file of a registry; references are known by the names in import lines."""
    try:
        data = base64.b64decode(text, validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, DecodeError):
        problem = "the registry gives no serialized Protobuf schema (?format=serialized)"
        raise SchemaProblem(problem) from None
    if name:
        file.name = name
    return file


def _message(file: FileDescriptor, indexes: list[int]) -> Descriptor:
    """Return the message type at a path of indexes; raise SchemaProblem."""
    found: Descriptor | None = None
    for index in indexes:
        names = file.message_types_by_name if found is None else found.nested_types_by_name
        types = list(names.values())
        if not 0 <= index < len(types):
            raise SchemaProblem(f"the schema has no message at the indexes {indexes}")
        found = types[index]
    assert found is not None, "there is an index"  # noqa: S101
    return found


def _indexes(data: bytes) -> tuple[list[int], bytes]:
    """Return the message indexes in front of a payload, and the rest; raise SchemaProblem.

    They are zigzag numbers: a count, and as many indexes. The count 0 means the first message.
    """
    count, position = _zigzag(data, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise SchemaProblem(f"no payload with message indexes: there are {count}")
    found = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        found.append(index)
    return found or [0], data[position:]


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while shift < _VARINT_BITS_MAX:
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise SchemaProblem("no payload with message indexes: it ends early")
