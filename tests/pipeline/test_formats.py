"""Avro and Protobuf payloads, by schema files and by a registry; fields from schema files."""

import base64
import datetime as dt
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import SparkSession

from penstock.errors import InvalidConfig
from penstock.limits import PIPELINE_REGISTRY_BYTES_MAX, PIPELINE_REGISTRY_UNKNOWN_MAX
from penstock.pipeline.avro import AvroDecoder, parse_schema
from penstock.pipeline.config import FieldConfig, PipelineConfig, RegistryConfig, SilverConfig
from penstock.pipeline.config_loading import load
from penstock.pipeline.errors import RegistryFailed, reason_of
from penstock.pipeline.protobuf import ProtobufDecoder
from penstock.pipeline.registry import Registry, SchemaProblem
from penstock.pipeline.schema_files import decoder
from penstock.pipeline.silver import ERROR, silver
from tests.support.pipeline_records import frame, record
from tests.support.schema_registry import SchemaRegistry

READING: dict[str, Any] = {
    "type": "record",
    "name": "plant.Reading",
    "fields": [
        {"name": "deviceId", "type": "string"},
        {"name": "celsius", "type": ["null", "double"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8,
                                   "scale": 3}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "parts", "type": {"type": "array", "items": {
            "type": "record", "name": "Part", "fields": [
                {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
                {"name": "count", "type": "long"}]}}},
        {"name": "limits", "type": {"type": "map", "values": "float"}},
        {"name": "either", "type": ["string", "int"]},
        {"name": "topic", "type": "int"},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "deviceId": "d", "celsius": math.nan, "price": Decimal("1.234"),
    "at": dt.datetime(2026, 11, 15, 1, 2, 3, 456789, tzinfo=dt.UTC), "raw": b"\x00\xff",
    "parts": [{"kind": "B", "count": 2**62}], "limits": {"x": 1.5}, "either": 5, "topic": 7,
}  # fmt: skip


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(identifier: int, data: bytes) -> bytes:
    return b"\x00" + identifier.to_bytes(4, "big") + data


def loaded(folder: Path, silver_table: str, more: str = "") -> PipelineConfig:
    file = folder / "pipeline.toml"
    file.write_text(f'{more}\n[[silver]]\nname = "a"\ntopics = ["t"]\n{silver_table}\n')
    return load(file, environment={})


def decoded(spark: SparkSession, config: PipelineConfig, *payloads: bytes) -> list[dict[str, Any]]:
    (schema,) = config.silver
    records = frame(spark, [record(n, each) for n, each in enumerate(payloads)])
    found = silver(records, schema, config.registry).orderBy("offset", *schema.positions)
    names = [field.name for field in schema.field]
    return [row.asDict(recursive=True) for row in found.select(*names, ERROR).collect()]


def test_avro_fits_the_fields_that_its_schema_declares(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(READING))
    config = loaded(tmp_path, 'format = "avro"\nschema_file = "reading.avsc"')
    payload = avro(READING, VALUE)
    whole, cut, long, empty = decoded(spark, config, payload, payload[:-1], payload + b"\0", b"")
    assert math.isnan(whole.pop("celsius"))
    moment = whole.pop("at")
    assert moment.astimezone(dt.UTC) == VALUE["at"]
    assert whole == {
        "device_id": "d", "price": Decimal("1.234"), "raw": bytearray(b"\x00\xff"),
        "parts": [{"kind": "B", "count": 2**62}], "limits": {"x": 1.5}, "either": "5",
        "topic_value": 7, ERROR: None,
    }  # fmt: skip
    errors = [each[ERROR] for each in (cut, long, empty)]
    assert errors[1] == "no Avro of this schema: 1 bytes follow the value"
    assert errors[0].startswith("no Avro of this schema: ") and errors[0] != errors[1]  # noqa: PT018
    assert errors[2].startswith("no Avro of this schema: ")
    assert {each["device_id"] for each in (cut, long, empty)} == {None}


def test_a_value_of_avro_that_the_declared_type_cannot_hold_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(READING))
    fields = """field = [
  { name = "price", type = "decimal(8,2)" },
  { name = "count", path = "parts.count", type = "int" },
]"""
    config = loaded(
        tmp_path, f'format = "avro"\nschema_file = "reading.avsc"\nexplode = "parts"\n{fields}'
    )
    parts = [{"kind": "A", "count": 1}, {"kind": "B", "count": 2**40}]
    fits = VALUE | {"price": Decimal("1.230"), "parts": parts}
    found = decoded(spark, config, avro(READING, fits), avro(READING, VALUE))
    assert [(each["count"], each["price"], each[ERROR]) for each in found] == [
        (1, Decimal("1.23"), None),
        (None, Decimal("1.23"), "element 1: count is no int: 1099511627776"),
        (None, None, "element 0: price is no decimal(8,2): 1.234"),
    ]


def test_a_reader_s_schema_resolves_the_writer_s(tmp_path: Path) -> None:
    def schema(*fields: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": list(fields)}

    writer = schema({"name": "a", "type": "int"}, {"name": "gone", "type": "string"})
    reader = schema({"name": "b", "type": "double", "aliases": ["a"]},
                    {"name": "unit", "type": "string", "default": "C"})  # fmt: skip
    payload = avro(writer, {"a": 5, "gone": "x"})
    texts = [json.dumps(each).encode() for each in (reader, writer)]
    made = decoder("avro", texts[0], texts[1], "", None)
    assert json.loads(made.to_json(payload)) == {"b": 5.0, "unit": "C"}
    other = schema({"name": "z", "type": "int"})
    with pytest.raises(SchemaProblem, match="no Avro of this schema: No default value for field z"):
        decoder("avro", json.dumps(other).encode(), texts[1], "", None).to_json(payload)
    (tmp_path / "r.avsc").write_bytes(texts[0])
    (tmp_path / "w.avsc").write_text("{}")
    settings = 'format = "avro"\nschema_file = "r.avsc"\nwriter_schema_file = "w.avsc"'
    config = loaded(tmp_path, settings.replace("w.avsc", "r.avsc"))
    assert [field.type for field in config.silver[0].field] == ["double", "string"]


def test_schemas_by_which_few_bytes_could_exhaust_a_worker_are_refused() -> None:
    linked = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    with pytest.raises(SchemaProblem, match="the Avro type L contains itself"):
        parse_schema(json.dumps(linked))
    nothing = {"type": "record", "name": "E", "fields": [{"name": "x", "type": "null"}]}
    for items in ("null", nothing, {"type": "fixed", "name": "F", "size": 0}):
        with pytest.raises(SchemaProblem, match="an Avro array has items without bytes"):
            parse_schema(json.dumps({"type": "array", "items": items}))
    pair = {"type": "record", "name": "P", "fields": [
        {"name": "a", "type": {"type": "enum", "name": "K", "symbols": ["X"]}},
        {"name": "b", "type": "K"}]}  # fmt: skip
    made = AvroDecoder(json.dumps({"type": "array", "items": pair}), None, None)
    assert made.to_json(b"\x02\x00\x00\x00") == b'[{"a":"X","b":"X"}]'
    for text in ("", "[", '"what"', '{"type": "record"}', "5"):
        with pytest.raises(SchemaProblem, match="no Avro schema: "):
            parse_schema(text)


def test_any_bytes_are_decoded_or_are_a_problem() -> None:
    made = AvroDecoder(json.dumps(READING), None, None)
    payload = avro(READING, VALUE)
    files, _ = proto_files()
    proto = ProtobufDecoder(files, "plant.Reading", None)
    for position in range(len(payload)):
        for change in (0x01, 0x80, 0xFF):
            data = bytearray(payload)
            data[position] ^= change
            for each in (made, proto):
                try:
                    json.loads(each.to_json(bytes(data)))
                except SchemaProblem:
                    continue


# --- Protobuf ---------------------------------------------------------------------------------------


def proto_files() -> tuple[bytes, Any]:
    """A FileDescriptorSet as protoc writes it, and its file."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="reading.proto", package="plant", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )  # fmt: skip
    file.message_type.add(name="Other")
    reading = file.message_type.add(name="Reading")
    part = reading.nested_type.add(name="Part")
    part.field.add(name="sku", number=1, type=field.TYPE_STRING, label=1)
    entry = reading.nested_type.add(name="LimitsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=1)
    add = reading.field.add
    add(name="deviceId", number=1, type=field.TYPE_STRING, label=1)
    add(name="count", number=2, type=field.TYPE_UINT64, label=1)
    add(name="at", number=3, type=field.TYPE_MESSAGE, label=1,
        type_name=".google.protobuf.Timestamp")  # fmt: skip
    add(name="parts", number=4, type=field.TYPE_MESSAGE, label=3, type_name=".plant.Reading.Part")
    add(name="limits", number=5, type=field.TYPE_MESSAGE, label=3,
        type_name=".plant.Reading.LimitsEntry")  # fmt: skip
    add(name="raw", number=6, type=field.TYPE_BYTES, label=1)
    add(name="next", number=7, type=field.TYPE_MESSAGE, label=1, type_name=".plant.Reading")
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    return descriptor_pb2.FileDescriptorSet(file=[known, file]).SerializeToString(), file


def proto_payload() -> bytes:
    files, _ = proto_files()
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(each)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Reading"))(
        deviceId="d", count=2**64 - 1, limits={"x": math.inf}, raw=b"\xff"
    )
    made.at.FromJsonString("2026-11-15T01:02:03.456789Z")
    made.parts.add(sku="s")
    made.next.deviceId = "e"
    return bytes(made.SerializeToString())


def test_protobuf_fits_the_fields_that_its_message_declares(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "reading.pb").write_bytes(proto_files()[0])
    config = loaded(
        tmp_path, 'format = "protobuf"\nschema_file = "reading.pb"\nmessage = "plant.Reading"'
    )
    payload = proto_payload()
    whole, cut, empty = decoded(spark, config, payload, payload[:-1], b"")
    assert json.loads(whole.pop("next"))["deviceId"] == "e"
    assert whole.pop("at").astimezone(dt.UTC) == VALUE["at"]
    assert whole == {
        "device_id": "d", "count": Decimal(2**64 - 1), "parts": [{"sku": "s"}],
        "limits": {"x": math.inf}, "raw": bytearray(b"\xff"), ERROR: None,
    }  # fmt: skip
    assert cut[ERROR].startswith("no Protobuf of this schema: ")
    assert (empty["count"], empty["parts"], empty["at"], empty[ERROR]) == (0, [], None, None)


# --- The registry -----------------------------------------------------------------------------------


def test_the_registry_gives_the_schema_of_each_payload(spark: SparkSession, tmp_path: Path) -> None:
    first = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    second = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"},
                                                        {"name": "a", "type": "ref.A"}]}  # fmt: skip
    inner = {"type": "record", "name": "ref.A", "fields": [{"name": "x", "type": "int"}]}
    with SchemaRegistry() as registry:
        registry.put(1, json.dumps(first))
        reference = {"name": "ref.A", "subject": "a", "version": 3}
        registry.put(2, json.dumps(second), references=[reference])
        registry.put_version("a", 3, json.dumps(inner))
        registry.put(3, "{", schemaType="PROTOBUF")
        registry.put(4, "{")
        more = f'[registry]\nurl = "{registry.url}"\nuser = "u"\npassword = "p"'
        fields = 'field = [{ name = "a" }, { name = "b" }]'
        config = loaded(tmp_path, f'format = "avro"\nregistry = true\n{fields}', more)
        named = {"ref.A": fastavro.parse_schema(inner)}
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(second, named_schemas=named), {"a": {"x": 1}, "b": "t"}
        )
        found = decoded(
            spark,
            config,
            framed(1, avro(first, {"a": 5})),
            framed(2, out.getvalue()),
            framed(1, avro(first, {"a": 6})),
            framed(3, b""),
            framed(4, b""),
            framed(5, b""),
            b"\x01\x00\x00\x00\x01",
            b"\x00",
        )
        assert [(each["a"], each["b"]) for each in found[:3]] == [
            ("5", None), ('{"x":1}', "t"), ("6", None),
        ]  # fmt: skip
        assert [each[ERROR] for each in found[3:]] == [
            "schema 3 is of type PROTOBUF, not AVRO",
            "no Avro schema: Input data was truncated",
            "schema 5 is not in the registry",
            *["no payload with a schema id: expected byte 0 and a 4-byte id"] * 2,
        ]
        assert registry.authorizations[0] == "Basic " + base64.b64encode(b"u:p").decode()
        registry.put(9, json.dumps(first))
        registry.status = 500
        with pytest.raises(Exception, match="RegistryFailed") as error:
            decoded(spark, config, framed(9, b""), framed(1, avro(first, {"a": 5})))
        assert reason_of(error.value).startswith(f"schema registry {registry.url}: it answered")


def test_protobuf_messages_are_found_by_their_indexes() -> None:
    _, file = proto_files()
    text = base64.b64encode(file.SerializeToString()).decode()
    with SchemaRegistry() as registry:
        registry.put(7, text, schemaType="PROTOBUF")
        registry.put(8, "syntax = 'proto3';", schemaType="PROTOBUF")
        made = ProtobufDecoder(b"", "", Registry(RegistryConfig(url=registry.url)))
        payload = proto_payload()
        assert json.loads(made.to_json(framed(7, b"\x02\x02" + payload)))["deviceId"] == "d"
        assert made.to_json(framed(7, b"\x04\x02\x00\x0a\x01s")) == b'{"sku":"s"}'
        assert made.to_json(framed(7, b"\x00")) == b"{}"
        for indexes, problem in (
            (b"\x02\x06", "no message at the indexes"),
            (b"\x04\x02\x09", "no message at the indexes"),
            (b"", "it ends early"),
            (b"\x02\x80", "it ends early"),
            (b"\xff\xff\xff\xff\xff\x01", "it ends early"),
            (b"\xfe\x01", "there are 127"),
            (b"\x01", "there are -1"),
        ):
            with pytest.raises(SchemaProblem, match=problem):
                made.to_json(framed(7, indexes))
        with pytest.raises(SchemaProblem, match="no serialized Protobuf schema"):
            made.to_json(framed(8, b"\x00"))
        assert len(registry.requests) == 2


def test_a_registry_that_fails_stops_the_step_and_an_unknown_id_does_not() -> None:
    with SchemaRegistry() as server:
        server.put(1, '"int"')
        server.put(2, "x" * PIPELINE_REGISTRY_BYTES_MAX)
        server.schemas["/schemas/ids/3"] = b"["
        registry = Registry(RegistryConfig(url=f"{server.url}/", timeout_seconds=60))
        assert registry.schema(1) == ("AVRO", '"int"', ())
        with pytest.raises(SchemaProblem, match="schema 2 has more than 4194304 bytes"):
            registry.schema(2)
        with pytest.raises(
            RegistryFailed, match=r"its answer is no JSON object; check registry\.url"
        ):
            registry.schema(3)
        server.status = 401
        server.put(4, '"int"')
        with pytest.raises(RegistryFailed, match="it answered with status 401"):
            registry.schema(4)
        assert registry.schema(1).text == '"int"'  # known, not asked for again
        server.wait.clear()
        hasty = Registry(RegistryConfig(url=server.url, timeout_seconds=0.1))
        with pytest.raises(RegistryFailed, match="timed out"):
            hasty.schema(4)
        server.wait.set()
        # A publisher that sends many ids does not cause as many requests.
        before = len(server.requests)
        for identifier in range(1000, 1000 + 2 * PIPELINE_REGISTRY_UNKNOWN_MAX):
            with pytest.raises(SchemaProblem, match=r"is not in the registry|was not looked up"):
                registry.schema(identifier)
        assert len(server.requests) - before < PIPELINE_REGISTRY_UNKNOWN_MAX
        registry.begin()
        server.status = 200
        assert registry.schema(4).text == '"int"'
        server.put(5, '"int"', references=[{"name": "r", "subject": "s", "version": 1}])
        server.put_version(
            "s", 1, '"int"', references=[{"name": "r", "subject": "s", "version": 1}]
        )
        assert registry.schema(5).references == (("r", '"int"'),)
    with pytest.raises(RegistryFailed, match="refused"):
        registry.schema(6)


# --- Fields of schema files -------------------------------------------------------------------------


def test_a_json_schema_gives_the_fields_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "required": ["deviceId", "maybe"],
        "properties": {
            "deviceId": {"type": "string"},
            "celsius": {"type": "number"},
            "count": {"type": "integer", "format": "int32"},
            "at": {"type": "string", "format": "date-time"},
            "on": {"type": ["string", "null"], "format": "date"},
            "raw": {"type": "string", "contentEncoding": "base64"},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
            "timestamp": {"type": "integer"},
        },
        "$defs": {
            "part": {
                "type": "object",
                "required": ["sku"],
                "properties": {
                    "sku": {"type": "string"},
                    "sub": {"type": "array", "items": {"$ref": "#/$defs/part"}},
                },
            }
        },
    }
    (tmp_path / "s.json").write_text(json.dumps(schema))
    config = loaded(
        tmp_path, 'schema_file = "s.json"\nfield = [{ name = "count", type = "decimal(4,1)" }]'
    )
    F = FieldConfig  # noqa: N806
    assert config.silver[0].field == (
        F(name="count", type="decimal(4,1)"),
        F(name="device_id", path="deviceId", required=True),
        F(name="celsius", type="double"),
        F(name="at", type="timestamp"),
        F(name="on", type="date"),
        F(name="raw", type="binary"),
        F(name="maybe", type="boolean"),
        F(name="either"),
        F(name="parts", type="struct", array=True,
          field=(F(name="sku", required=True), F(name="sub", array=True))),
        F(name="grid", array=True),
        F(name="limits", type="long", map=True),
        F(name="timestamp_value", type="long", path="timestamp"),
    )  # fmt: skip
    text = (
        b'{"deviceId": "d", "grid": [[1, 2]], "timestamp": 5, "parts": [{"sku": "s", "sub": [{}]}]}'
    )
    whole, wrong = decoded(spark, config, text, b'{"deviceId": "d", "count": 1.25}')
    assert (whole["grid"], whole["timestamp_value"], whole[ERROR]) == (["[1,2]"], 5, None)
    assert whole["parts"] == [{"sku": "s", "sub": ["{}"]}]
    assert wrong[ERROR] == "count is no decimal(4,1): 1.25"


@pytest.mark.parametrize(
    ("settings", "key", "problem"),
    [
        ('format = "avro"', "schema_file", "missing; format = \"avro\" needs it, or registry = true"),
        ('format = "avro"\nschema_file = "no.avsc"', "schema_file", "cannot be read: no such file"),
        ('format = "avro"\nschema_file = "x.json"', "schema_file", "no Avro schema: "),
        ('schema_file = "list.json"', "schema_file", "there are no properties"),
        ('schema_file = "bad.json"', "schema_file", "no JSON Schema: "),
        ('schema_file = "loop.json"', "schema_file", "a $ref refers to itself"),
        ('schema_file = "away.json"', "schema_file", 'put it under $defs'),
        ('format = "csv"\nschema_file = "x.json"', "schema_file", 'cannot be used with format = "csv"'),
        ('format = "protobuf"\nschema_file = "x.json"\nmessage = "m"', "schema_file", "no FileDescriptorSet"),
        ('format = "protobuf"\nschema_file = "x.pb"\nmessage = "m"', "schema_file", "there are: plant.Other, plant.Reading"),
        ('message = "m"', "message", 'needs format = "protobuf"'),
        ("registry = true", "registry", 'needs format = "avro" or "protobuf"'),
        ('writer_schema_file = "x.json"', "writer_schema_file", 'needs format = "avro"'),
    ],
)  # fmt: skip
def test_problems_of_schema_files_are_named(
    tmp_path: Path, settings: str, key: str, problem: str
) -> None:
    files = {
        "x.json": '{"properties": {}}', "list.json": "{}", "bad.json": "[",
        "loop.json": '{"$ref": "#/a", "a": {"$ref": "#/a"}}',
        "away.json": '{"properties": {"a": {"$ref": "http://x/y"}}}',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "x.pb").write_bytes(proto_files()[0])
    with pytest.raises(InvalidConfig) as error:
        loaded(tmp_path, f'{settings}\nfield = [{{ name = "a" }}]')
    assert f"silver[0].{key}: " in str(error.value)
    assert problem in str(error.value)


def test_a_registry_needs_an_address(tmp_path: Path) -> None:
    table = 'format = "avro"\nregistry = true\nfield = [{ name = "a" }]'
    for more, problem in (
        ("", "registry.url: missing; a silver table has registry = true"),
        ('[registry]\nurl = "kafka:1"', "registry.url: expected http://HOST:PORT"),
        ('[registry]\nurl = "http://u:p@h:1"', "registry.url: has credentials"),
        ('[registry]\nurl = "http://h:1"\ncertificate = "x"', "registry.certificate: needs"),
    ):
        with pytest.raises(InvalidConfig) as error:
            loaded(tmp_path, table, more)
        assert problem in str(error.value)
        assert "u:p" not in str(error.value)
    file = tmp_path / "pipeline.toml"
    file.write_text('[registry]\nurl = "http://h:1"\n')
    assert load(file, environment={"PENSTOCK_REGISTRY_PASSWORD": "x"}).registry.password == "x"  # noqa: S105
    assert SilverConfig(name="a", topics=("t",)).registry is False
