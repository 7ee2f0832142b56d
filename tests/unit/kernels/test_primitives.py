"""The primitives under the kernels, each beside its plain twin."""

import random
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._kernels.fleximq import messagepack_end
from penstock._kernels.rheos2 import crc32, crc32_by_tables
from penstock.errors import WireError
from penstock.wire import messagepack


def test_crc32_is_zlibs_for_every_short_length() -> None:
    data = random.Random(7).randbytes(700)
    for start in (0, 1, 3, 8):
        for size in range(650):
            part = data[start : start + size]
            assert crc32(part) == crc32_by_tables(part) == zlib.crc32(part)


@given(st.binary(max_size=5000))
def test_crc32_is_zlibs(data: bytes) -> None:
    assert crc32(data) == crc32_by_tables(data) == zlib.crc32(data)


def plain_end(data: bytes, depth_max: int) -> int | None:
    try:
        return messagepack.measure(
            data, 0, depth_max=depth_max, elements_max=sys.maxsize, string_bytes_max=len(data)
        )
    except WireError:
        return None


def assert_same_end(data: bytes, depth_max: int = 64) -> None:
    assert messagepack_end(data, depth_max) == plain_end(data, depth_max)


def test_messagepack_of_every_first_byte_and_cut() -> None:
    tails = [b"", bytes(300), b"\x01" * 40, b"\xff" * 40, b"abc" * 20, b"\x00\x02ab", b"\xc1" * 5]
    for first in range(256):
        for tail in tails:
            for size in (0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 40, 300):
                assert_same_end(bytes([first]) + tail[:size])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=30,
)  # fmt: skip


@given(JSON, st.integers(0, 6), st.data())
def test_messagepack_of_real_values(value: object, depth_max: int, data: st.DataObject) -> None:
    encoded = messagepack.encode(value)
    assert_same_end(encoded)
    assert_same_end(encoded, depth_max)
    assert_same_end(encoded[: data.draw(st.integers(0, len(encoded)))])
    flipped = bytearray(encoded)
    flipped[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert_same_end(bytes(flipped))


@given(st.binary(max_size=60))
def test_messagepack_of_garbage(data: bytes) -> None:
    assert_same_end(data)
    assert_same_end(data, 2)


def test_messagepack_depth_is_bounded() -> None:
    nested = b"\x91" * 64 + b"\xc0"
    assert messagepack_end(nested, 64) == len(nested)
    assert messagepack_end(b"\x91" + nested, 64) is None
    deepest = b"\x91" * 512 + b"\xc0"
    assert messagepack_end(deepest, 512) == len(deepest)
    assert messagepack_end(b"\x91" + deepest, 512) is None
    with pytest.raises(ValueError, match="depth_max"):
        messagepack_end(nested, 513)


@given(st.binary(max_size=12) | st.text(max_size=12).map(str.encode))
def test_strings_are_utf8_exactly_when_python_says_so(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        valid = False
    else:
        valid = True
    frame = bytes([0xD9, len(data)]) + data
    assert (messagepack_end(frame, 0) == len(frame)) is valid


def test_every_two_and_three_byte_sequence_is_judged_as_python_does() -> None:
    tails = [b"", b"\x7f", b"\x80", b"\x9f", b"\xa0", b"\xbf", b"\xc0", b"\x8f", b"\x90"]
    for first in range(256):
        for second in range(256):
            for tail in tails:
                for last in (b"", b"\x80", b"\x41"):
                    data = bytes([first, second]) + tail + last
                    valid = data.decode(errors="ignore").encode() == data
                    frame = bytes([0xD9, len(data)]) + data
                    assert (messagepack_end(frame, 0) is not None) is valid
