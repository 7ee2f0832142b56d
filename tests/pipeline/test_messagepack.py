"""MessagePack to JSON, a batch at a time: the same as one value at a time."""

import json
import random

import msgspec
import pyarrow as pa
import pytest

from penstock.pipeline.messagepack import to_json

GOOD = [
    {"a": 1, "b": "text\nwith a line", "c": [1, 2.5, None, True]},
    {"nested": {"deep": {"er": -1}}},
    {},
    [1, 2, 3],
    "text",
    0,
    None,
    {"big": 2**63, "small": -(2**63)},
]
BAD = [
    b"",
    b"\xc1",
    b"\x92\x01",  # an array of two with one: the next value must not become the second
    b"\x01\x02",  # two values
    b"\xc4\x20" + bytes(16),  # a bin that would end inside what follows
    b"\x81\xa1a",
    b"\xa3\xff\xff\xff",
    None,
]


def one_by_one(value: bytes | None) -> object:
    """What a value is, by another way; an Ellipsis if it is none."""
    if value is None:
        return ...
    try:
        return json.loads(msgspec.json.encode(msgspec.msgpack.decode(value)))
    except (ValueError, msgspec.DecodeError):
        return ...


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_gives_what_its_values_give_alone_whatever_their_neighbours(seed: int) -> None:
    chance = random.Random(seed)
    encoded = [msgspec.msgpack.encode(each) for each in GOOD]
    values = [
        chance.choice(BAD) if chance.random() < 0.1 * (seed % 4) else chance.choice(encoded)
        for _ in range(chance.randrange(200))
    ]
    texts, errors = to_json(pa.array(values, pa.binary()))
    assert (len(texts), len(errors)) == (len(values), len(values))
    for value, text, error in zip(values, texts.to_pylist(), errors.to_pylist(), strict=True):
        expected = one_by_one(value)
        if expected is ...:
            assert text is None
            assert error.startswith("no MessagePack")
        else:
            assert error is None
            assert json.loads(text) == expected


def test_a_slice_of_a_column_is_decoded_alone() -> None:
    column = pa.array([b"\xc1", b"\x01", b"\x02", b"\xc1"], pa.binary()).slice(1, 2)
    texts, errors = to_json(column)
    assert (texts.to_pylist(), errors.to_pylist()) == (["1", "2"], [None, None])


def test_bytes_become_base64_and_times_iso() -> None:
    value = msgspec.msgpack.encode({"raw": b"\x00\xff"})
    assert json.loads(to_json(pa.array([value], pa.binary()))[0][0].as_py()) == {"raw": "AP8="}
