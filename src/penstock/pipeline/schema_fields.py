"""Fields of a silver table from its schema file: JSON Schema, Avro or Protobuf.

A column has the name of its field in lower case, `deviceId` is `device_id`; with a name that every
silver table has, such as `topic`, it ends with `_value`. A type that no column has, such as a
union, a list of lists or a type that contains itself, becomes "string": the value's JSON text.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock.limits import PIPELINE_SCHEMA_DEPTH_MAX
from penstock.pipeline.config import NAME_PATTERN, FieldConfig, SilverConfig
from penstock.pipeline.registry import SchemaProblem

__all__ = ["schema_fields"]


class _Type(NamedTuple):
    """The type of a column, as the keys of a field."""

    type: str = "string"
    array: bool = False
    map: bool = False
    field: tuple[FieldConfig, ...] = ()


_TEXT: Final = _Type()


def schema_fields(silver: SilverConfig, schema: bytes) -> tuple[FieldConfig, ...]:
    """Return the declared fields of a table and those of its schema; raise SchemaProblem.

    A declared field replaces the one of the schema with its name or path.
    """
    match silver.format:
        case "avro":
            found = _avro_fields(schema, silver)
        case "protobuf":
            found = _protobuf_fields(schema, silver)
        case _:
            found = _json_fields(schema, silver)
    known = {name for field in silver.field for name in (field.name, field.path)}
    reserved = set(silver.metadata_columns)
    fields = list(silver.field)
    for field in found:
        if field.name in known or (field.path or field.name) in known:
            continue
        if silver.explode and (field.path or field.name) == silver.explode:  # an element of it
            field = msgspec.structs.replace(field, array=False)  # noqa: PLW2901
        if field.name in reserved:
            path = field.path or field.name
            field = msgspec.structs.replace(field, name=f"{field.name}_value", path=path)  # noqa: PLW2901
        fields.append(field)
    return tuple(fields)


def _field(name: str, kind: _Type, *, required: bool = False) -> FieldConfig:
    column = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    column = re.sub(r"[^a-z0-9_]", "_", column)
    if not re.fullmatch(NAME_PATTERN, column) or re.search(r"[.']", name):
        raise SchemaProblem(f'no column can be named after "{name}"; remove it from the file')
    path = "" if column == name else name
    return FieldConfig(name=column, path=path, required=required, **kind._asdict())


def _list(item: _Type) -> _Type:
    return _Type("string", array=True) if item.array or item.map else item._replace(array=True)


def _map(item: _Type) -> _Type:
    return _Type("string", map=True) if item.array or item.map else item._replace(map=True)


def _struct(fields: Iterable[FieldConfig]) -> _Type:
    found = tuple(fields)
    return _Type("struct", field=found) if found else _TEXT


# --- JSON Schema ----------------------------------------------------------------------------------


def _json_fields(schema: bytes, silver: SilverConfig) -> tuple[FieldConfig, ...]:
    try:
        root = msgspec.json.decode(schema, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SchemaProblem(f"no JSON Schema: {error}") from None
    reader = _JsonSchema(root)
    top = reader.resolve(root)
    if silver.records in {"array", "sequence"} and isinstance(top.get("items"), dict):
        top = reader.resolve(top["items"])
    if not isinstance(top.get("properties"), dict):
        raise SchemaProblem("no JSON Schema of an object: there are no properties")
    return reader.fields(top, ())


class _JsonSchema:
    """A JSON Schema, of which `$ref` may name other parts."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def resolve(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part that a node refers to, and the only real one of alternatives."""
        for _ in range(PIPELINE_SCHEMA_DEPTH_MAX):
            if isinstance(node.get("$ref"), str):
                node = self._part(node["$ref"])
                continue
            choices = node.get("anyOf") or node.get("oneOf") or node.get("allOf") or ()
            real = [
                each for each in choices if isinstance(each, dict) and each.get("type") != "null"
            ]
            if len(real) != 1:
                return node
            node = real[0]
        raise SchemaProblem("no JSON Schema: a $ref refers to itself")

    def _part(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        for name in reference.removeprefix("#").strip("/").split("/"):
            key = name.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if not reference.startswith("#") or not isinstance(found, dict):
            raise SchemaProblem(f'"{reference}" is in no part of this file; put it under $defs')
        return found

    def fields(self, node: Mapping[str, Any], outer: tuple[int, ...]) -> tuple[FieldConfig, ...]:
        """Return the fields of an object."""
        required = node.get("required") or ()
        return tuple(
            _field(
                name,
                self._type(inner, (*outer, id(node))),
                required=name in required and not self._nullable(inner),
            )
            for name, inner in node["properties"].items()
            if isinstance(inner, dict)
        )

    def _nullable(self, node: Mapping[str, Any]) -> bool:
        kinds = [each.get("type") for each in node.get("anyOf") or node.get("oneOf") or ()]
        resolved = self.resolve(node).get("type")
        listed = resolved if isinstance(resolved, list) else [resolved]
        return "null" in kinds or "null" in listed

    def _type(self, node: Mapping[str, Any], outer: tuple[int, ...]) -> _Type:
        node = self.resolve(node)
        if id(node) in outer or len(outer) > PIPELINE_SCHEMA_DEPTH_MAX:
            return _TEXT
        kinds = node.get("type")
        named = [each for each in kinds if each != "null"] if isinstance(kinds, list) else [kinds]
        match named:
            case ["object"] if isinstance(node.get("properties"), dict):
                return _struct(self.fields(node, outer))
            case ["object"] if isinstance(node.get("additionalProperties"), dict):
                return _map(self._type(node["additionalProperties"], (*outer, id(node))))
            case ["array"] if isinstance(node.get("items"), dict):
                return _list(self._type(node["items"], (*outer, id(node))))
            case ["array"]:
                return _Type(array=True)
            case ["integer"]:
                return _Type("int" if node.get("format") == "int32" else "long")
            case ["number"]:
                return _Type("float" if node.get("format") == "float" else "double")
            case ["boolean"]:
                return _Type("boolean")
            case ["string"] if node.get("format") == "date-time":
                return _Type("timestamp")
            case ["string"] if node.get("format") == "date":
                return _Type("date")
            case ["string"] if node.get("contentEncoding") == "base64":
                return _Type("binary")
        return _TEXT


# --- Avro -----------------------------------------------------------------------------------------

_AVRO: Final = {
    "int": "int", "long": "long", "float": "float", "double": "double", "boolean": "boolean",
    "bytes": "binary", "fixed": "binary", "string": "string", "enum": "string", "null": "string",
}  # fmt: skip
_AVRO_LOGICAL: Final = {
    "date": "date", "timestamp-millis": "timestamp", "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp", "local-timestamp-micros": "timestamp",
    "time-millis": "string", "time-micros": "string", "uuid": "string",
}  # fmt: skip


def _avro_fields(schema: bytes, silver: SilverConfig) -> tuple[FieldConfig, ...]:
    from penstock.pipeline.avro import parse_named  # noqa: PLC0415  (needs fastavro)

    try:
        top, named = parse_named(schema.decode())
    except UnicodeDecodeError:
        raise SchemaProblem("no Avro schema: it is not UTF-8") from None
    if silver.records == "array" and isinstance(top, dict) and top["type"] == "array":
        top = top["items"]
    if isinstance(top, str):
        top = named.get(top, top)
    if not isinstance(top, dict) or top["type"] != "record":
        raise SchemaProblem("no Avro schema of a record")
    return tuple(_field(each["name"], _avro_type(each["type"], named)) for each in top["fields"])


def _avro_type(schema: Any, named: Mapping[str, Any]) -> _Type:  # noqa: ANN401
    if isinstance(schema, list):
        real = [each for each in schema if each != "null"]
        return _avro_type(real[0], named) if len(real) == 1 else _TEXT
    if isinstance(schema, str):
        return _Type(_AVRO[schema]) if schema in _AVRO else _avro_type(named[schema], named)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return _Type(f"decimal({schema['precision']},{schema.get('scale', 0)})")
    if logical in _AVRO_LOGICAL:
        return _Type(_AVRO_LOGICAL[logical])
    match schema["type"]:
        case "record":
            return _struct(
                _field(each["name"], _avro_type(each["type"], named)) for each in schema["fields"]
            )
        case "array":
            return _list(_avro_type(schema["items"], named))
        case "map":
            return _map(_avro_type(schema["values"], named))
        case inner:
            return _Type(_AVRO[inner]) if inner in _AVRO else _avro_type(inner, named)


# --- Protobuf -------------------------------------------------------------------------------------

_PROTOBUF_WRAPPERS: Final = {
    "google.protobuf.Timestamp": "timestamp", "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float", "google.protobuf.Int64Value": "long",
    "google.protobuf.UInt64Value": "decimal(20,0)", "google.protobuf.Int32Value": "int",
    "google.protobuf.UInt32Value": "long", "google.protobuf.BoolValue": "boolean",
    "google.protobuf.BytesValue": "binary",
}  # fmt: skip


def _protobuf_fields(schema: bytes, silver: SilverConfig) -> tuple[FieldConfig, ...]:
    from penstock.pipeline.protobuf import message_descriptor  # noqa: PLC0415  (needs protobuf)

    descriptor = message_descriptor(schema, silver.message)
    outer = (descriptor.full_name,)
    return tuple(_field(each.name, _protobuf_type(each, outer)) for each in descriptor.fields)


def _protobuf_type(field: Any, outer: tuple[str, ...]) -> _Type:  # noqa: ANN401
    """Return the type of a FieldDescriptor."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return _map(_protobuf_item(inner.fields_by_name["value"], outer))
    item = _protobuf_item(field, outer)
    return _list(item) if field.is_repeated else item


def _protobuf_item(field: Any, outer: tuple[str, ...]) -> _Type:  # noqa: ANN401
    inner = field.message_type
    if inner is None:
        return _Type(_PROTOBUF[field.type])
    if inner.full_name in _PROTOBUF_WRAPPERS:
        return _Type(_PROTOBUF_WRAPPERS[inner.full_name])
    if inner.full_name.startswith("google.protobuf.") or inner.full_name in outer:
        return _TEXT
    if len(outer) > PIPELINE_SCHEMA_DEPTH_MAX:
        return _TEXT
    below = (*outer, inner.full_name)
    return _struct(_field(each.name, _protobuf_type(each, below)) for each in inner.fields)


# By the numbers of FieldDescriptorProto.Type.
_PROTOBUF: Final = {
    1: "double", 2: "float", 3: "long", 4: "decimal(20,0)", 5: "int", 6: "decimal(20,0)",
    7: "long", 8: "boolean", 9: "string", 12: "binary", 13: "long", 14: "string", 15: "int",
    16: "long", 17: "int", 18: "long",
}  # fmt: skip
