"""The encoder of row groups: the bytes of a plain encoder, in one buffer or in many."""

import dataclasses
import random

import pytest

from penstock._kernels.row_group import MessageLayout, RowGroupEncoder
from penstock.storage.arrow.format.segment import (
    BUFFERS,
    Columns,
    check_row_group,
    encode_row_group,
    parse_row_group,
)
from tests.support.log_rows import columns
from tests.support.plain_row_group import plain_row_group

_VALUES = 5
"""The place of the values among the buffers."""


def some_columns(seed: int, size_max: int) -> Columns:
    """Return columns of any bytes: the encoder does not look at them."""
    rng = random.Random(seed)

    def buffer() -> memoryview | bytes | int:
        length = rng.choice((0, 1, 7, 8, 9, rng.randrange(size_max)))
        return rng.choice((length, rng.randbytes(length), memoryview(rng.randbytes(length))))

    return Columns(
        base_offset=rng.choice((0, rng.getrandbits(40), (1 << 62) - 1)),
        count=rng.randrange(1, 65_537),
        header_count=rng.randrange(100),
        null_counts=(rng.randrange(9), rng.randrange(9), rng.randrange(9), rng.randrange(9)),
        buffers=[buffer() for _ in range(BUFFERS)],
        topics=[rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(4))],
        senders=[rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(4))],
    )


@pytest.mark.parametrize("size_max", [10, 400, 4_000, 100_000])
def test_the_bytes_are_those_of_the_plain_encoder(size_max: int) -> None:
    for seed in range(100 if size_max < 100_000 else 10):
        found = some_columns(seed, size_max)
        previous, synced = seed * 0x01234567 & 0xFFFFFFFF, seed << 55
        encoded = encode_row_group(found, previous=previous, synced=synced)
        data = b"".join(encoded.buffers)
        assert (data, encoded.crc32c) == plain_row_group(found, previous=previous, synced=synced)
        assert encoded.size == len(data)


@pytest.mark.parametrize(
    ("sizes", "buffers"),
    [
        ([100] * 10, 1),
        ([60_000], 1),
        ([66_000], 3),
        ([1_000] * 100, 3),
        ([60_001, 7, 9_999], 3),
    ],
)
def test_large_values_are_not_copied(sizes: list[int], buffers: int) -> None:
    whole = columns(7, [random.Random(size).randbytes(size) for size in sizes])
    encoded = encode_row_group(whole, previous=3, synced=7)
    assert len(encoded.buffers) == buffers
    values = [each for each in encoded.buffers if each is whole.buffers[_VALUES]]
    assert len(values) == (buffers == 3)
    data = b"".join(encoded.buffers)
    assert (data, encoded.crc32c) == plain_row_group(whole, previous=3, synced=7)
    assert encoded.size == len(data)


def test_the_columns_of_many_rows_are_not_copied() -> None:
    whole = columns(0, [bytes(100)] * 2_000)
    large = encode_row_group(whole, previous=0, synced=0)
    alike = [each for each in large.buffers if any(each is buffer for buffer in whole.buffers)]
    assert len(alike) > 5


def test_a_row_group_of_any_size_is_read_back() -> None:
    for size in (1, 15_000, 60_000, 65_000, 66_000, 200_000):
        encoded = encode_row_group(columns(7, [b"y" * size]), previous=3, synced=7)
        data = b"".join(encoded.buffers)
        row_group = parse_row_group(data)
        assert check_row_group(data, row_group)
        assert (row_group.base_offset, row_group.count, row_group.size) == (7, 1, len(data))


def test_layouts_and_columns_that_do_not_fit_are_refused() -> None:
    places = {"body_length": 0, "length": 8, "nodes": 16, "buffers": 32}
    layout = MessageLayout(bytes(80), **places)
    with pytest.raises(ValueError, match="not inside"):
        MessageLayout(bytes(79), **places)
    with pytest.raises(ValueError, match="texts"):
        MessageLayout(bytes(2000), **places, texts=((0, 20),))
    with pytest.raises(ValueError, match="two dictionaries"):
        RowGroupEncoder(layout, layout, layout)
    short = dataclasses.replace(columns(0, [b"a"]), buffers=[b""])
    with pytest.raises(ValueError, match="1 buffers"):
        encode_row_group(short, previous=0, synced=0)
