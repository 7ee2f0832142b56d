"""MessagePack within caps, byte by byte from the format's table."""

import contextlib
import datetime as dt
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, WireError
from penstock.wire import messagepack
from penstock.wire.messagepack import (
    Kind,
    Malformed,
    StringTooLong,
    TooDeep,
    TooManyElements,
    Unencodable,
)

CAPS = {"depth_max": 8, "elements_max": 1000, "string_bytes_max": 100_000}


def measure(text: str | bytes, start: int = 0, **caps: int) -> int:
    data = bytes.fromhex(text) if isinstance(text, str) else text
    return messagepack.measure(data, start, **{**CAPS, **caps})


def decode(text: str | bytes, **caps: int) -> object:
    data = bytes.fromhex(text) if isinstance(text, str) else text
    return messagepack.decode(data, **{**CAPS, **caps})


# One value of each format, and what Python makes of it
FORMATS = [
    ("positive fixint", "00", 0),
    ("largest positive fixint", "7F", 127),
    ("fixmap", "81 A1 61 01", {"a": 1}),
    ("empty fixmap", "80", {}),
    ("largest fixmap", "8F" + "".join(f"{key:02X} C0" for key in range(15)), dict.fromkeys(range(15))),
    ("fixarray", "92 01 C0", [1, None]),
    ("largest fixarray", "9F" + "01" * 15, [1] * 15),
    ("fixstr", "A2 6869", "hi"),
    ("largest fixstr", "BF" + "61" * 31, "a" * 31),
    ("nil", "C0", None),
    ("false", "C2", False),
    ("true", "C3", True),
    ("bin 8", "C4 02 FFFE", b"\xff\xfe"),
    ("bin 16", "C5 0002 FFFE", b"\xff\xfe"),
    ("bin 32", "C6 00000002 FFFE", b"\xff\xfe"),
    ("float 32", "CA 3FC00000", 1.5),
    ("float 64", "CB 3FF8000000000000", 1.5),
    ("uint 8", "CC FF", 255),
    ("uint 16", "CD FFFF", 65_535),
    ("uint 32", "CE FFFFFFFF", 2**32 - 1),
    ("uint 64", "CF FFFFFFFFFFFFFFFF", 2**64 - 1),
    ("int 8", "D0 80", -128),
    ("int 16", "D1 8000", -32_768),
    ("int 32", "D2 80000000", -(2**31)),
    ("int 64", "D3 8000000000000000", -(2**63)),
    ("timestamp 32", "D6 FF 00000001", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
    ("str 8", "D9 02 6869", "hi"),
    ("str 16", "DA 0002 6869", "hi"),
    ("str 32", "DB 00000002 6869", "hi"),
    ("array 16", "DC 0002 01 02", [1, 2]),
    ("array 32", "DD 00000002 01 02", [1, 2]),
    ("map 16", "DE 0001 01 02", {1: 2}),
    ("map 32", "DF 00000001 01 02", {1: 2}),
    ("negative fixint", "FF", -1),
    ("smallest negative fixint", "E0", -32),
    ("nested", "82 A1 61 92 80 90 A1 62 C4 00", {"a": [{}, []], "b": b""}),
]  # fmt: skip

# Formats of ext: any type, any content
EXTENSIONS = [
    ("fixext 1", "D4 05 00"),
    ("fixext 2", "D5 05 0000"),
    ("fixext 4", "D6 05 00000000"),
    ("fixext 8", "D7 05 " + "00" * 8),
    ("fixext 16", "D8 05 " + "00" * 16),
    ("empty ext 8", "C7 00 05"),
    ("ext 8", "C7 03 05 000000"),
    ("ext 16", "C8 0003 05 000000"),
    ("ext 32", "C9 00000003 05 000000"),
    ("timestamp of no calendar", "D7 FF FFFFFFFFFFFFFFFF"),
]
WHOLE = [(name, text) for name, text, _ in FORMATS] + EXTENSIONS


@pytest.mark.parametrize(("_name", "text"), WHOLE, ids=[row[0] for row in WHOLE])
def test_a_value_ends_where_its_format_says(_name: str, text: str) -> None:
    data = bytes.fromhex(text)
    assert measure(data) == len(data)
    assert measure(data + b"\xc1") == len(data)  # what is behind is not looked at
    assert measure(b"\xc1\xc1" + data, 2) == len(data) + 2
    for borrowed in (bytearray(data), memoryview(data)):
        assert messagepack.measure(borrowed, 0, **CAPS) == len(data)


@pytest.mark.parametrize(("_name", "text"), WHOLE, ids=[row[0] for row in WHOLE])
def test_a_value_cut_short_anywhere_is_malformed(_name: str, text: str) -> None:
    data = bytes.fromhex(text)
    for size in range(len(data)):
        with pytest.raises(Malformed):
            measure(data[:size])
        with pytest.raises(Malformed):
            measure(b"\x92\x00" + data[:size])


@pytest.mark.parametrize(("_name", "text", "value"), FORMATS, ids=[row[0] for row in FORMATS])
def test_a_value_decodes(_name: str, text: str, value: object) -> None:
    decoded = decode(text)
    assert decoded == value
    assert type(decoded) is type(value)


def test_every_first_byte_has_the_kind_of_the_table() -> None:
    kinds = {
        Kind.SCALAR: [*range(0x80), 0xC0, 0xC2, 0xC3, *range(0xCA, 0xD4), *range(0xE0, 0x100)],
        Kind.MAP: [*range(0x80, 0x90), 0xDE, 0xDF],
        Kind.ARRAY: [*range(0x90, 0xA0), 0xDC, 0xDD],
        Kind.STR: [*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB],
        Kind.BIN: [0xC4, 0xC5, 0xC6],
        Kind.EXT: [0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)],
    }
    for kind, first_bytes in kinds.items():
        for first in first_bytes:
            assert messagepack.head(bytes([first, 0, 0, 0, 0]), 0)[0] is kind
    assert sum(map(len, kinds.values())) == 255


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("C1", 0),
        ("91 C1", 1),
        ("81 C1 00", 1),
        ("82 00 00 00 C1", 4),
        ("A1 FF", 0),  # never in UTF-8
        ("A2 C0 80", 0),  # overlong
        ("A3 ED A0 80", 0),  # a surrogate
        ("A4 F4 90 80 80", 0),  # beyond U+10FFFF
        ("92 A2 C3 A9 A1 C3", 4),  # a whole character, then half of one
        ("DD 00000002 01", 6),
    ],
)
def test_malformed_bytes_are_told_by_where_the_faulty_value_starts(
    text: str, position: int
) -> None:
    with pytest.raises(Malformed) as caught:
        measure(text)
    assert caught.value.position == position
    with pytest.raises(Malformed):
        decode(text)


def test_a_start_at_or_beyond_the_end_is_cut_short() -> None:
    for start in (1, 2):
        with pytest.raises(Malformed):
            measure("00", start)


def test_bin_and_ext_need_not_be_utf8() -> None:
    assert measure("C4 01 FF") == 3
    assert measure("D4 FF FF") == 3


# --- Caps ---------------------------------------------------------------------------------------


def test_a_scalar_has_depth_0_and_each_array_or_map_adds_1() -> None:
    assert measure("01", depth_max=0) == 1
    assert measure("A1 61", depth_max=0) == 2
    for empty in ("90", "80", "DC 0000", "DF 00000000"):
        with pytest.raises(TooDeep):
            measure(empty, depth_max=0)
        measure(empty, depth_max=1)
    measure("92 91 00 81 00 00", depth_max=2)  # beside one another is not deeper
    measure("81 90 90", depth_max=2)  # a key is as deep as its value
    for text in ("91 91 90", "81 90 91 90", "81 91 90 00"):
        assert measure(text, depth_max=3)
        with pytest.raises(TooDeep) as caught:
            measure(text, depth_max=2)
        assert caught.value.args == (3, 2)


def test_depth_falls_again_behind_a_container() -> None:
    assert measure("93 91 91 00 91 91 00 91 91 00", depth_max=3) == 10


def test_a_very_deep_value_does_not_recurse() -> None:
    data = b"\x91" * 200_000 + b"\xc0"
    assert measure(data, depth_max=200_000, elements_max=200_000) == len(data)
    with pytest.raises(TooDeep):
        measure(data)
    with pytest.raises(Malformed):  # msgspec's own recursion limit
        decode(data, depth_max=200_000, elements_max=200_000)


def test_elements_are_counted_over_the_whole_value_two_for_a_pair() -> None:
    assert measure("01", elements_max=0) == 1
    assert measure("90", elements_max=0) == 1
    for text, count in (
        ("93 01 01 01", 3),
        ("82 01 01 02 02", 4),
        ("92 92 01 01 81 01 01", 6),
        ("DE 0001 01 01", 2),
    ):
        assert measure(text, elements_max=count)
        with pytest.raises(TooManyElements):
            measure(text, elements_max=count - 1)


def test_a_declared_count_is_judged_before_its_elements_are_walked() -> None:
    for text, count in (
        ("DC FFFF", 65_535),
        ("DD FFFFFFFF", 2**32 - 1),
        ("DE FFFF", 2 * 65_535),
        ("DF FFFFFFFF", 2 * (2**32 - 1)),
        ("DD 000003E9 C1", 1001),
        ("92 01 DD 000003E7", 1001),
    ):
        with pytest.raises(TooManyElements) as caught:
            measure(text)
        assert caught.value.args == (count, 1000)


def test_a_huge_count_within_the_cap_ends_with_the_bytes() -> None:
    with pytest.raises(Malformed):
        measure("DD FFFFFFFF 01 01", elements_max=2**33)


def test_depth_is_judged_before_elements() -> None:
    with pytest.raises(TooDeep):
        measure("DD FFFFFFFF", depth_max=0, elements_max=0)


@pytest.mark.parametrize(
    "text", ["A3 616161", "D9 03 616161", "C4 03 FFFFFF", "C7 03 05 000000", "81 A3 616161 00"]
)
def test_a_string_is_capped_by_its_bytes(text: str) -> None:
    assert measure(text, string_bytes_max=3)
    with pytest.raises(StringTooLong) as caught:
        measure(text, string_bytes_max=2)
    assert caught.value.args == (3, 2)


def test_the_type_of_an_ext_is_no_part_of_its_length() -> None:
    assert measure("D6 05 00000000", string_bytes_max=4) == 6
    with pytest.raises(StringTooLong):
        measure("D6 05 00000000", string_bytes_max=3)


def test_a_string_length_is_judged_before_its_bytes_are_there() -> None:
    for text in ("DB FFFFFFFF", "C6 FFFFFFFF", "C9 FFFFFFFF"):
        with pytest.raises(StringTooLong):
            measure(text)


def test_the_first_fault_in_the_order_of_bytes_is_raised() -> None:
    with pytest.raises(Malformed):
        measure("92 C1 DB FFFFFFFF")
    with pytest.raises(StringTooLong):
        measure("92 DB FFFFFFFF C1")


# --- Values -------------------------------------------------------------------------------------

# Well formed, yet Python has no value for them
ODD = [
    ("nanoseconds beyond a second", "D7 FF FFFFFFFFFFFFFFFF"),
    ("seconds beyond the calendar", "C7 0C FF 00000000 7FFFFFFFFFFFFFFF"),
    ("seconds before the calendar", "C7 0C FF 00000000 8000000000000000"),
    ("a timestamp of 2 bytes", "D5 FF 0000"),
    ("an empty timestamp", "C7 00 FF"),
    ("a map as key", "81 80 00"),
    ("an ext as key", "81 D4 05 00 00"),
    ("an array with a map as key", "81 91 80 00"),
    ("an array with an ext as key", "81 91 D4 05 00 00"),
]


@pytest.mark.parametrize(("_name", "text"), ODD, ids=[row[0] for row in ODD])
def test_what_python_has_no_value_for_is_malformed(_name: str, text: str) -> None:
    assert measure(text) == len(bytes.fromhex(text))
    with pytest.raises(Malformed):
        decode(text)


def test_decode_takes_exactly_one_value() -> None:
    for text in ("01 01", "80 C1", "A0 00"):
        with pytest.raises(Malformed):
            decode(text)


def test_decode_applies_the_caps() -> None:
    with pytest.raises(TooDeep):
        decode("91 90", depth_max=1)
    with pytest.raises(TooManyElements):
        decode("92 01 01", elements_max=1)
    with pytest.raises(StringTooLong):
        decode("A2 6869", string_bytes_max=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (127, "7F"), (128, "CC80"), (255, "CCFF"), (256, "CD0100"), (65_536, "CE00010000"),
        (2**32, "CF0000000100000000"), (-32, "E0"), (-33, "D0DF"), ("a" * 31, "BF" + "61" * 31),
        ("a" * 32, "D920" + "61" * 32), (b"", "C400"), ([], "90"), ({"a": None}, "81A161C0"),
        ([0] * 16, "DC0010" + "00" * 16), (1.5, "CB3FF8000000000000"),
    ],
)  # fmt: skip
def test_encode_writes_the_shortest_format(value: object, text: str) -> None:
    assert messagepack.encode(value) == bytes.fromhex(text)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", object(), {"a": 1j}])
def test_encode_refuses_what_has_no_format(value: object) -> None:
    with pytest.raises(Unencodable) as caught:
        messagepack.encode(value)
    assert caught.value.code is ErrorCode.FIELD_OUT_OF_RANGE


def test_encode_refuses_a_value_that_holds_itself() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(Unencodable):
        messagepack.encode(value)


# --- Parts --------------------------------------------------------------------------------------


def test_elements_are_cut_out_unchanged() -> None:
    parts = [b"\xa1a", b"\xcd\x00\x01", b"\x91\x80", b"\xc4\x00"]
    assert messagepack.elements(b"\x94" + b"".join(parts)) == parts
    assert messagepack.elements(b"\x82" + b"".join(parts)) == parts
    assert messagepack.elements(b"\xdf\x00\x00\x00\x02" + b"".join(parts)) == parts
    assert messagepack.elements(b"\x80") == []


def test_string_and_unsigned_read_their_own_kind_only() -> None:
    for text, string, unsigned in (
        ("A2 C3A9", "é", None),
        ("DB 00000000", "", None),
        ("C4 01 61", None, None),
        ("00", None, 0),
        ("CF 00000000000000FF", None, 255),
        ("D3 0000000000000007", None, 7),
        ("CD 0100", None, None),
        ("FF", None, None),
        ("C0", None, None),
        ("C2", None, None),
        ("C3", None, None),
        ("CA 3F800000", None, None),
        ("91 01", None, None),
        ("D4 05 01", None, None),
    ):
        data = bytes.fromhex(text)
        assert messagepack.string(data) == string
        assert messagepack.unsigned(data, 255) == unsigned


def test_errors_pickle_and_name_their_code() -> None:
    for error, code in (
        (Malformed("why", 3), ErrorCode.MESSAGEPACK_MALFORMED),
        (TooDeep(3, 2), ErrorCode.MESSAGEPACK_TOO_DEEP),
        (TooManyElements(3, 2), ErrorCode.MESSAGEPACK_TOO_MANY_ELEMENTS),
        (StringTooLong(3, 2), ErrorCode.MESSAGEPACK_STRING_TOO_LONG),
        (Unencodable("why"), ErrorCode.FIELD_OUT_OF_RANGE),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(copy), copy.args, str(copy)) == (type(error), error.args, str(error))
        assert copy.code == code


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300),
    lambda children: (
        st.lists(children, max_size=20)
        | st.dictionaries(st.text(max_size=5), children, max_size=20)
    ),
    max_leaves=30,
)


@given(VALUES, st.binary(max_size=5))
def test_encoded_values_measure_whole_and_come_back(value: object, behind: bytes) -> None:
    data = messagepack.encode(value)
    caps = {"depth_max": 100, "elements_max": 10_000, "string_bytes_max": 1000}
    assert messagepack.measure(data + behind, 0, **caps) == len(data)
    assert messagepack.decode(data, **caps) == value


@given(st.binary(max_size=64))
def test_garbage_ends_where_an_independent_reader_says_or_is_a_wire_error(data: bytes) -> None:
    try:
        end = measure(data, elements_max=2**40, string_bytes_max=2**40, depth_max=100)
    except Malformed:
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            msgspec.msgpack.decode(data)
        return
    # Raw is taken only if one value fills the bytes exactly.
    assert bytes(msgspec.msgpack.decode(data[:end], type=msgspec.Raw)) == data[:end]
    with contextlib.suppress(Malformed):  # odd, as above
        decode(data[:end], elements_max=2**40)


@given(st.binary(max_size=64))
def test_garbage_never_raises_anything_but_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(data)
