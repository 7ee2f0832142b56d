"""Structs, maps, and several rows for a message: no value is lost, and each row is there once."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InvalidConfig
from penstock.pipeline.config import (
    FieldConfig,
    GoldConfig,
    MergeConfig,
    PipelineConfig,
    SilverConfig,
    SourceConfig,
)
from penstock.pipeline.config_loading import load
from penstock.pipeline.dead_letters import replay
from penstock.pipeline.maintenance import Maintenance, check_table
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.silver import ERROR, dead_letters, silver, valid_rows
from penstock.pipeline.warehouse import Warehouse
from tests.support.pipeline_records import frame, record
from tests.support.written_log import WrittenLog, message

F = FieldConfig
ITEM = (F(name="sku", required=True), F(name="price", type="decimal(6,2)"))
NESTED = SilverConfig(
    name="orders",
    topics=("t",),
    field=(
        F(
            name="customer",
            type="struct",
            field=(
                F(name="name", required=True),
                F(name="city", path="address.city"),
                F(name="born", type="date", formats=("dd.MM.yyyy",)),
                F(name="codes", type="int", array=True),
            ),
        ),
        F(name="items", type="struct", array=True, field=ITEM),
        F(name="limits", type="double", map=True),
        F(name="places", type="struct", map=True, field=(F(name="x", type="int"),)),
    ),
)


def rows(found: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.orderBy("offset").select(*columns).collect()]


def plain(value: Any) -> Any:
    """Rows as dictionaries."""
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_nested_values_fit_their_types_or_say_which_does_not(spark: SparkSession) -> None:
    whole = {
        "customer": {"name": "A", "address": {"city": "B"}, "born": "01.02.2003", "codes": [1, 2]},
        "items": [{"sku": "x", "price": "1.50"}, None, {"sku": "y"}],
        "limits": {"low": 1, "high": "2.5", "none": None},
        "places": {"a": {"x": 1}, "b": None},
    }
    values: list[tuple[Any, str | None]] = [
        (whole, None),
        ({}, None),
        ({"customer": None, "items": [], "limits": {}, "places": None}, None),
        ({"customer": 5}, "customer is no struct: 5"),
        ({"customer": [1]}, "customer is no struct: [1]"),
        ({"customer": {}}, "customer.name is missing"),
        ({"customer": {"name": "A", "born": "x"}}, "customer.born is no date: x"),
        ({"customer": {"name": "A", "codes": 5}}, "customer.codes is no array: 5"),
        ({"customer": {"name": "A", "codes": ["x"]}}, "customer.codes is no int: [x]"),
        ({"items": {"sku": "x"}}, 'items is no array: {"sku":"x"}'),
        ({"items": [{"sku": "x"}, 7]}, "items is no struct: 7"),
        ({"items": [{"price": 1}]}, "items.sku is missing"),
        (
            {"items": [{"sku": "x"}, {"sku": "y", "price": 1.239}]},
            "items.price is no decimal(6,2): 1.239",
        ),
        ({"limits": [1]}, "limits is no map: [1]"),
        ({"limits": {"low": 1, "high": "x"}}, "limits is no double: x"),
        ({"places": {"a": 1}}, "places is no struct: 1"),
        ({"places": {"a": {"x": 2**31}}}, "places.x is no int: 2147483648"),
    ]
    given = [record(n, json.dumps(value).encode()) for n, (value, _) in enumerate(values)]
    found = silver(frame(spark, given), NESTED)
    assert rows(found, ERROR) == [(error,) for _, error in values]
    fits = rows(valid_rows(found), *(field.name for field in NESTED.field))
    assert [plain(each) for each in fits[0]] == [
        {"name": "A", "city": "B", "born": dt.date(2003, 2, 1), "codes": [1, 2]},
        [{"sku": "x", "price": Decimal("1.50")}, None, {"sku": "y", "price": None}],
        {"low": 1.0, "high": 2.5, "none": None},
        {"a": {"x": 1}, "b": None},
    ]
    assert fits[1:] == [(None, None, None, None), (None, [], {}, None)]


def test_a_message_may_have_several_records_and_elements(spark: SparkSession) -> None:
    fields = (F(name="n", type="int", required=True), F(name="tag", path="tags"))
    array = SilverConfig(name="a", topics=("t",), field=fields[:1], records="array")
    lines = SilverConfig(name="b", topics=("t",), field=fields[:1], records="lines")
    both = SilverConfig(name="c", topics=("t",), field=fields, records="array", explode="tags")
    pairs = SilverConfig(
        name="d",
        topics=("t",),
        field=(F(name="n", type="int"), F(name="sku", path="items.sku", required=True),
               F(name="item", path="items", type="struct", field=ITEM)),
        explode="items",
    )  # fmt: skip
    packed = SilverConfig(
        name="e", topics=("t",), field=fields[:1], format="messagepack", records="sequence"
    )
    comma = SilverConfig(name="f", topics=("t",), field=fields[:1], format="csv", records="lines")

    def decoded(schema: SilverConfig, *payloads: bytes) -> list[tuple[Any, ...]]:
        records = frame(spark, [record(n, each) for n, each in enumerate(payloads)])
        found = silver(records, schema)
        names = [field.name for field in schema.field if field.type != "struct"]
        return [
            tuple(row)
            for row in found.orderBy("offset", *schema.positions)
            .select("offset", *schema.positions, *names, ERROR)
            .collect()
        ]

    assert decoded(array, b'[{"n": 1}, {"n": "x"}, 5]', b"[]", b'{"n": 1}', b'[{"n":1,"n":1}]') == [
        (0, 0, 1, None),
        (0, 1, None, "record 1: n is no int: x"),
        (0, 2, None, "record 2: no JSON object"),
        (2, None, None, "no JSON array"),
        (3, None, None, "a key appears twice in one JSON object"),
    ]
    assert decoded(lines, b'{"n": 1}\r\n\n{"n": 2}\n{"n"', b"", b"\xff") == [
        (0, 0, 1, None),
        (0, 1, 2, None),
        (0, 2, None, "record 2: no JSON object"),
        (2, None, None, "not UTF-8"),
    ]
    text = b'[{"n": 1, "tags": ["x", "y"]}, {"n": 2}, {"n": 3, "tags": []}, {"n": 4, "tags": 5}, 6]'
    assert decoded(both, text) == [
        (0, 0, 0, 1, "x", None),
        (0, 0, 1, 1, "y", None),
        (0, 1, None, 2, None, None),
        (0, 2, None, 3, None, None),
        (0, 3, None, 4, None, "record 3: tags is no array: 5"),
        (0, 4, None, None, None, "record 4: no JSON object"),
    ]
    text = b'{"n": 1, "items": [{"sku": "x", "price": 1}, {"price": 1.001}, {"sku": "z", "price": 1.001}]}'
    assert decoded(pairs, text, b'{"n": 2}', b"[]") == [
        (0, 0, 1, "x", None),
        (0, 1, 1, None, "element 1: sku is missing"),
        (0, 2, 1, "z", "element 2: item.price is no decimal(6,2): 1.001"),
        (1, None, 2, None, "sku is missing"),
        (2, None, None, None, "no JSON object"),
    ]
    values = [msgspec.msgpack.encode(each) for each in ({"n": 1}, {"n": 2}, [3])]
    assert decoded(packed, b"".join(values), values[0] + b"\x81", b"") == [
        (0, 0, 1, None),
        (0, 1, 2, None),
        (0, 2, None, "record 2: no JSON object"),
        (1, None, None, "no MessagePack: cut short at byte 5"),
    ]
    assert decoded(comma, b"1,x\r\n2\n\nz\n") == [
        (0, 0, 1, None),
        (0, 1, 2, None),
        (0, 2, None, "record 2: n is no int: z"),
    ]
    letters = dead_letters(
        silver(frame(spark, [record(0, b'[{"n":"x"},{"n":"y"}]')]), array), array
    )
    assert rows(letters, "error", "offset") == [("record 0: n is no int: x", 0)]


def test_floats_that_json_has_no_number_for_are_not_lost(spark: SparkSession) -> None:
    schema = SilverConfig(
        name="a", topics=("t",), format="messagepack",
        field=(F(name="x", type="double"), F(name="y", type="float", array=True)),
    )  # fmt: skip
    inf = float("inf")
    payload = msgspec.msgpack.encode({"x": -inf, "y": [inf, 1.5, float("nan"), None]})
    ((x, y, error),) = rows(silver(frame(spark, [record(0, payload)]), schema), "x", "y", ERROR)
    assert (x, y[:2], y[3], error) == (-inf, [inf, 1.5], None, None)
    assert y[2] != y[2]


def test_each_row_of_a_message_is_in_the_table_once(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    schema = SilverConfig(
        name="orders",
        topics=("orders",),
        field=(
            F(name="number", type="int", path="n"),
            F(name="sku", path="items.sku", required=True),
            F(name="item", path="items", type="struct", field=ITEM),
            F(name="limits", type="double", map=True),
        ),
        records="array",
        explode="items",
    )
    latest = msgspec.structs.replace(schema, name="latest", merge=MergeConfig(key=("sku",)))
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data")),
        silver=(schema, latest),
        silver_rows_max=2,
        gold=GoldConfig(enabled=False),
    )
    table = warehouse.silver("orders")

    def put(*messages: Any) -> None:
        first = log.log.next_offset
        texts = [json.dumps(each).encode() for each in messages]
        log.put(*(message("orders", text, first + n) for n, text in enumerate(texts)))

    def found(name: str) -> list[tuple[Any, ...]]:
        columns = ["offset", "record", "element", "number", "sku", "item", "limits"]
        delta = DeltaTable(str(warehouse.silver(name).folder)).to_pyarrow_table(columns=columns)
        return sorted((tuple(row.values()) for row in delta.to_pylist()), key=str)

    def order(number: int, *skus: str | None) -> dict[str, Any]:
        items = [{"sku": sku, "price": "1.10"} for sku in skus]
        return {"n": number, "items": items, "limits": {"a": number}}

    def expected(offset: int, place: int, number: int, *skus: str) -> list[tuple[Any, ...]]:
        item = {"price": Decimal("1.10")}
        limits = [("a", float(number))]
        return [
            (offset, place, n, number, sku, {"sku": sku} | item, limits)
            for n, sku in enumerate(skus)
        ]

    with WrittenLog(tmp_path / "data") as log:
        for first in (0, 4):  # two processes with two steps each
            for n in (first, first + 2):
                put([order(n, "a", "b"), order(n + 1, "c")], [order(n, None, "d")])
            Pipeline(spark, warehouse, config).run_once()
        rows_now = found("orders")
        wanted = []
        for n in range(0, 8, 2):
            wanted += [*expected(n, 0, n, "a", "b"), *expected(n, 1, n + 1, "c")]
            wanted.append((n + 1, 0, 1, n, "d", {"sku": "d", "price": Decimal("1.10")},
                           [("a", float(n))]))  # fmt: skip
        assert rows_now == sorted(wanted, key=str)
        letters = warehouse.tables()["dead_letters"].read(spark).where("schema = 'orders'")
        assert rows(letters, "offset", "error") == [
            (n, "record 0, element 0: sku is missing") for n in (1, 3, 5, 7)
        ]
        assert [row[:5] for row in found("latest")] == [
            (6, 0, 0, 6, "a"), (6, 0, 1, 6, "b"), (6, 1, 0, 7, "c"), (7, 0, 1, 6, "d"),
        ]  # fmt: skip
        assert Maintenance(warehouse).compact(table, files_min=2) > 0
        assert found("orders") == rows_now
        assert rebuild(spark, warehouse, config, "orders") == (16, 4)
        assert found("orders") == rows_now
        # A replay adds the rows that the table lacks, and no others.
        fields = (schema.field[0], F(name="sku", path="items.sku"), *schema.field[2:])
        item = F(name="item", path="items", type="struct", field=(F(name="sku"), ITEM[1]))
        eased = msgspec.structs.replace(schema, field=(fields[0], fields[1], item, fields[3]))
        assert replay(spark, warehouse, eased) == ("orders", 4, 0)
        assert replay(spark, warehouse, eased) == ("orders", 0, 0)
        assert len(found("orders")) == 20
        for each in warehouse.tables().values():
            assert check_table(each).problems == []


@pytest.mark.parametrize(
    ("settings", "key", "problem"),
    [
        ('field = [{ name = "a", type = "struct" }]', "field[0].field", "a struct needs"),
        ('field = [{ name = "a", field = [{ name = "b" }] }]', "field[0].field", "needs type"),
        ('field = [{ name = "a", array = true, map = true }]', "field[0].map", "cannot be used"),
        (
            'field = [{ name = "a", type = "struct", field = [{ name = "b" }, { name = "b" }] }]',
            "field[0].field[1].name",
            'another field is named "b"',
        ),
        (
            'field = [{ name = "a", type = "struct", field = [{ name = "b", type = "c" }] }]',
            "field[0].field[0].type",
            "binary, struct or decimal(digits, scale)",
        ),
        ('field = [{ name = "a", map = true }]\nformat = "csv"', "field[0].map", 'format = "csv"'),
        ('field = [{ name = "a" }]\nrecords = "sequence"', "records", 'format = "messagepack"'),
        ('field = [{ name = "a" }]\nexplode = "b"', "explode", 'no field has the path "b"'),
        ('field = [{ name = "ab" }]\nexplode = "a"', "explode", 'no field has the path "a"'),
        ('field = [{ name = "record" }]\nrecords = "array"', "field[0].name", '"record"'),
        ('field = [{ name = "a", map = true }]\ndedup = ["a"]', "dedup", "is a map or struct"),
        ("", "field", "missing; expected a list of tables, not empty"),
    ],
)
def test_settings_that_do_not_fit_are_named(
    tmp_path: Path, settings: str, key: str, problem: str
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(f'[[silver]]\nname = "a"\ntopics = ["t"]\n{settings}\n')
    with pytest.raises(InvalidConfig) as error:
        load(file)
    assert f"silver[0].{key}: " in str(error.value)
    assert problem in str(error.value)
    assert f"{file}:" in str(error.value) or "pipeline.toml:" in str(error.value)
