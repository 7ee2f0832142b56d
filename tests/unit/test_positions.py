"""The payload of frames with positions; expected bytes are written out from its layout."""

import dataclasses
import struct

import pytest

from penstock.positions import (
    Anchor,
    AnchoredPartition,
    InvalidPositions,
    Place,
    Places,
    decode,
    encode_anchor,
    encode_places,
)

PLACES = Places(7, 3, 2, 100, 5_000, 1000, is_final=True)
HEAD = struct.pack("<BBHIQQqI", 1, 1, 3, 2, 7, 100, 5_000, 1000)
ANCHOR = Anchor("a/ü", 7, 5_000, {3: AnchoredPartition(9, 4, is_final=False)}, has_history=True)


def test_places_of_a_run_are_counted_from_the_first_offset() -> None:
    assert encode_places(PLACES) == HEAD
    places = decode(HEAD)
    assert isinstance(places, Places)
    assert list(places) == [Place(7, 3, 100 + n, 5_000, 1000, is_final=True) for n in range(2)]


def test_rows_and_columns_give_each_place_its_own_values() -> None:
    payload = (
        struct.pack("<BBHIQQqI", 1, 2 | 4, 3, 2, 7, 100, 0, 0)
        + struct.pack("<2I", 1, 5)
        + struct.pack("<2q", 60, 61)
        + struct.pack("<2I", 1001, 1002)
    )
    places = decode(payload)
    assert isinstance(places, Places)
    assert list(places) == [
        Place(7, 3, 101, 60, 1001, is_final=False),
        Place(7, 3, 105, 61, 1002, is_final=False),
    ]
    assert encode_places(places) == payload


def test_an_anchor_names_its_pattern_and_all_partitions() -> None:
    payload = struct.pack("<BBHQq", 2, 1, 1, 7, 5_000) + struct.pack("<HBQQ", 3, 0, 9, 4)
    assert encode_anchor(ANCHOR) == payload + "a/ü".encode()
    assert decode(payload + "a/ü".encode()) == ANCHOR


@pytest.mark.parametrize(("field", "flag"), [("has_history", 1), ("is_replay", 2), ("in_group", 4)])
def test_an_anchor_has_a_flag_for_each_fact(field: str, flag: int) -> None:
    anchor = dataclasses.replace(ANCHOR, has_history=False)
    anchor = dataclasses.replace(anchor, **{field: True})  # type: ignore[arg-type]
    assert encode_anchor(anchor)[1] == flag
    assert decode(encode_anchor(anchor)) == anchor


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\x03", HEAD[:-1], HEAD + b"x", encode_anchor(ANCHOR)[:20], b"\xff" * 40],
)
def test_other_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(InvalidPositions):
        decode(payload)


def test_an_anchor_whose_pattern_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidPositions):
        decode(encode_anchor(ANCHOR) + b"\xff")
