"""Silver on frames that stand still: decoding, types, dead letters, late and repeated rows."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.config import FieldConfig, SilverConfig
from penstock.pipeline.silver import (
    ERROR,
    dead_letters,
    deduplicated,
    mark_late,
    silver,
    valid_rows,
)
from tests.support.pipeline_records import START, frame, record

F = FieldConfig


def rows(found: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.orderBy("offset").select(*columns).collect()]


def utc(text: str) -> dt.datetime:
    """A time as Spark gives it back: in the zone of this process, without one."""
    return dt.datetime.fromisoformat(text).astimezone().replace(tzinfo=None)


JSON = SilverConfig(
    name="readings",
    topics=("plant/+/reading", "other"),
    field=(
        F(name="number", type="long", required=True),
        F(name="celsius", type="double", path="values.temp"),
        F(name="price", type="decimal(10,2)"),
        F(name="ok", type="boolean"),
        F(name="measured", type="timestamp", formats=("epoch_ms", "iso", "dd.MM.yyyy HH:mm")),
        F(name="on", type="date"),
        F(name="raw", type="binary"),
        F(name="steps", type="int", array=True),
        F(name="name"),
    ),
)


def test_json_fits_its_schema_or_says_which_field_does_not(spark: SparkSession) -> None:
    whole = {
        "number": 9007199254740993,
        "values": {"temp": 21.5},
        "price": "19.99",
        "ok": True,
        "measured": 1_794_700_000_123,
        "on": "2026-11-15",
        "raw": "AP8=",
        "steps": [1, 2],
        "name": "zwölf",
        "added later": 1,
    }
    values: list[tuple[Any, str | None]] = [
        (whole, None),
        ({"number": "7", "measured": "2026-11-15T01:00:00+01:00", "name": {"a": 1}}, None),
        ({"number": 1, "measured": "15.11.2026 00:30"}, None),
        ({}, "number is missing"),
        ({"number": None}, "number is missing"),
        ({"number": 1.5}, "number is no long: 1.5"),
        ({"number": 2**63}, "number is no long: 9223372036854775808"),
        ({"number": 1, "values": {"temp": "warm"}}, "celsius is no double: warm"),
        ({"number": 1, "measured": "noon"}, "measured is no timestamp: noon"),
        ({"number": 1, "steps": [1, "x"]}, "steps is no int: [1, x]"),
        ({"number": 1, "steps": 5}, "steps is no array: 5"),
        ({"number": 1, "steps": "1,2"}, "steps is no array: 1,2"),
        ({"number": 1, "steps": {"a": [1]}}, 'steps is no array: {"a":[1]}'),
        ({"number": 1, "steps": None}, None),
        ({"number": 1, "steps": []}, None),
        ({"number": 1, "price": 1.239}, "price is no decimal(10,2): 1.239"),
        ({"number": 1, "price": "0.001"}, "price is no decimal(10,2): 0.001"),
        ({"number": 1, "price": "12e-3"}, "price is no decimal(10,2): 12e-3"),
        ({"number": 1, "price": "123456789.00"}, "price is no decimal(10,2): 123456789.00"),
        ({"number": 1, "price": "x"}, "price is no decimal(10,2): x"),
        ({"number": 1, "price": "1.2300"}, None),
        ({"number": 1, "price": " -1200e-3 "}, None),
        ({"number": 1, "price": "0.000"}, None),
        ({"number": 1, "price": 12}, None),
        ({"number": 1, "price": 1e3}, None),
        ({"number": 1, "price": ".5"}, None),
        ({"number": 1, "values": {"temp": "1e999"}}, "celsius is no double: 1e999"),
        ({"number": 1, "values": {"temp": "-Infinity"}}, None),
        ({"number": 1, "on": "yesterday"}, "on is no date: yesterday"),
        ({"number": 1, "raw": "%"}, "raw is no binary: %"),
        ([1], "no JSON object"),
        ("text", "no JSON object"),
    ]
    raw = [(json.dumps(value).encode(), error) for value, error in values]
    raw += [
        (b'{"number": 1} {"number": 2}', "no JSON object"),
        (b'{"number": 1', "no JSON object"),
        (b'{"number": 1, "number": 2}', "a key appears twice in one JSON object"),
        (b'{"number": 1, "x": [{"a": 1, "a": 1}]}', "a key appears twice in one JSON object"),
        (b'{"number": 1, "number": 2', "no JSON object"),
        (b'[{"number": 1, "number": 2}]', "no JSON object"),
        (b' \r\n\t{"number": 1}\n', None),
        (b'{"number": 1}, "end of value"], ["x"', "no JSON object"),
        (b' [{"number": 1}]', "no JSON object"),
        (b'["{", 1]', "no JSON object"),
        (b"", "no JSON object"),
        (b"\xff{}", "not UTF-8"),
        (None, "there is no value"),
    ]
    given = [record(n, value, topic="plant/a/reading") for n, (value, _) in enumerate(raw)]
    given.append(record(1000, b'{"number": 1}', topic="plant/a/b/reading"))
    found = silver(frame(spark, given), JSON)
    assert rows(found, ERROR) == [(error,) for _, error in raw]
    fits = rows(valid_rows(found), *(field.name for field in JSON.field))
    assert fits[0] == (
        9007199254740993, 21.5, Decimal("19.99"), True, utc("2026-11-14T23:46:40.123Z"),
        dt.date(2026, 11, 15), bytearray(b"\x00\xff"), [1, 2], "zwölf",
    )  # fmt: skip
    assert fits[1][0] == 7
    assert fits[1][4] == utc("2026-11-15T00:00:00Z")
    assert json.loads(fits[1][8]) == {"a": 1}
    assert fits[2][4] == utc("2026-11-15T00:30:00Z")
    prices = [row[0] for row in rows(valid_rows(found), "price") if row[0] is not None]
    assert prices == [
        Decimal(each) for each in ("19.99", "1.23", "-1.20", "0.00", "12.00", "1000.00", "0.50")
    ]
    letters = rows(dead_letters(found, JSON), "schema", "error", "value", "topic", "offset")
    assert letters == [
        ("readings", error, None if value is None else bytearray(value), "plant/a/reading", n)
        for n, (value, error) in enumerate(raw)
        if error is not None
    ]


def test_messagepack_csv_and_text_follow_the_same_rules(spark: SparkSession) -> None:
    fields = (F(name="number", type="int", required=True), F(name="note"))
    packed = SilverConfig(name="a", topics=("m",), format="messagepack", field=fields)
    comma = SilverConfig(name="b", topics=("c",), format="csv", delimiter=";", field=fields)
    lines = SilverConfig(
        name="c", topics=("l",), format="text", pattern=r"(\d+|x)(?: (.*))?", field=fields
    )
    whole = SilverConfig(name="d", topics=("l",), format="text", field=(F(name="line"),))
    given = [
        record(0, msgspec.msgpack.encode({"number": 1, "note": "a"}), topic="m"),
        record(1, b"\xc1", topic="m"),
        record(2, msgspec.msgpack.encode({"number": "x"}), topic="m"),
        record(3, b'2;"semi;colon"', topic="c"),
        record(4, b"3", topic="c"),
        record(5, b"four;x", topic="c"),
        record(6, b"7;a;more", topic="c"),
        record(7, b"5 words in a row", topic="l"),
        record(8, b"6", topic="l"),
        record(9, b"nothing", topic="l"),
        record(10, b"x y", topic="l"),
    ]
    records = frame(spark, given)
    assert rows(silver(records, packed), "number", "note", ERROR) == [
        (1, "a", None),
        (None, None, "no MessagePack: 0xC1, which is never used, at byte 0"),
        (None, None, "number is no int: x"),
    ]
    assert rows(silver(records, comma), "number", "note", ERROR) == [
        (2, "semi;colon", None),
        (3, None, None),
        (None, "x", "number is no int: four"),
        (7, "a", None),
    ]
    assert rows(silver(records, lines), "number", "note", ERROR) == [
        (5, "words in a row", None),
        (6, None, None),
        (None, None, "does not match the pattern"),
        (None, "y", "number is no int: x"),
    ]
    assert rows(silver(records, whole), "line", ERROR)[1] == ("6", None)


def test_late_rows_are_dead_letters_or_dropped_or_kept_as_the_schema_says(
    spark: SparkSession,
) -> None:
    fields = (F(name="at", type="timestamp", formats=("epoch_s",)),)
    base = SilverConfig(name="a", topics=("t",), field=fields, event_time="at")
    seconds = int(START.timestamp())
    given = [record(n, b'{"at": %d}' % (seconds + n)) for n in range(4)]
    given.append(record(4, b"{}"))  # has the broker's time
    decoded = silver(frame(spark, given), base)
    watermark = START + dt.timedelta(seconds=2)

    def judged(late: str) -> list[tuple[Any, ...]]:
        schema = msgspec.structs.replace(base, late=late)
        return rows(mark_late(decoded, schema, watermark), "offset", ERROR)

    text = "late: 2026-11-14 23:59:0{} is before the watermark 2026-11-14 23:59:02"
    in_time = [(2, None), (3, None), (4, None)]
    assert judged("dead-letter") == [(0, text.format(0)), (1, text.format(1)), *in_time]
    assert judged("drop") == in_time
    assert judged("keep") == [(0, None), (1, None), *in_time]
    assert rows(mark_late(decoded, base, None), ERROR) == [(None,)] * 5


def test_of_rows_with_the_same_keys_the_first_stays_unless_it_is_known(spark: SparkSession) -> None:
    fields = (F(name="a", type="int"), F(name="b"))
    schema = SilverConfig(name="a", topics=("t",), field=fields)
    texts = [b'{"a":1,"b":"x"}', b'{"a":1,"b":"y"}', b'{"a":1,"b":"x"}', b"{}", b"{}"]
    given = [record(n, text) for n, text in enumerate(texts)]
    found = valid_rows(silver(frame(spark, [*given, given[1]]), schema))
    assert rows(deduplicated(found, ["message_id"]), "offset") == [(n,) for n in range(5)]
    assert rows(deduplicated(found, ["a", "b"]), "offset") == [(0,), (1,), (3,), (4,)]
    known = found.where("offset = 0")
    assert rows(deduplicated(found, ["a", "b"], known), "offset") == [(1,), (3,), (4,)]
    assert found.columns == deduplicated(found, ["a", "b"], known).columns


def test_fields_may_have_the_names_of_what_stands_beside_them(spark: SparkSession) -> None:
    names = ("value", "error", "place", "schema", "text", "problem", "parts", "whole")
    fields = tuple(F(name=name, type="long", path=name[0]) for name in names)
    schema = SilverConfig(name="named", topics=("t",), field=fields)
    payload = {name[0]: number for number, name in enumerate(names)}
    bad = payload | {"v": "x"}
    records = frame(spark, [record(n, json.dumps(each).encode()) for n, each in
                            enumerate((payload, bad, payload))])  # fmt: skip
    found = silver(records, schema)
    expected = tuple(payload[name[0]] for name in names)
    kept = deduplicated(valid_rows(found), ("value", "place"))
    assert rows(kept, *names) == [expected]
    (letter,) = rows(dead_letters(found, schema), "offset", "error", "value")
    assert letter == (1, "value is no long: x", bytearray(json.dumps(bad).encode()))


def test_a_hash_takes_messages_without_a_topic_too(spark: SparkSession) -> None:
    records = frame(
        spark,
        [
            record(0, b'{"n": 1}', topic="", kind="request"),
            record(1, b'{"n": 2}', topic="a"),
            record(2, b'{"n": 3}', topic="", kind="reply"),
        ],
    )
    field = F(name="n", type="long")
    every = SilverConfig(name="every", topics=("#",), field=(field,))
    asked = SilverConfig(name="asked", topics=("#",), kinds=("request",), field=(field,))
    level = SilverConfig(name="level", topics=("+",), field=(field,))
    assert rows(silver(records, every), "n") == [(1,), (2,), (3,)]
    assert rows(silver(records, asked), "n") == [(1,)]
    assert rows(silver(records, level), "n") == [(2,)]
