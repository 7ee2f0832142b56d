"""A small mutator: the same seed gives the same inputs, on every machine."""

import random
from collections.abc import Callable, Iterator, Sequence

from penstock.model import ByteOrder

INTERESTING = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xC0, 0xFA, 0xFE, 0xFF)
LENGTHS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0xFFFF_FFFF)
ORDERS: Sequence[ByteOrder] = ("little", "big")
INPUT_BYTES_MAX = 512
"""Longer mutants are cut: every input is also fed byte by byte."""


def mutants(seeds: Sequence[bytes], *, count: int, seed: int) -> Iterator[bytes]:
    """Give `count` inputs, each a seed after one to four changes."""
    choose = random.Random(seed)
    for _ in range(count):
        data = bytearray(choose.choice(seeds))
        for _ in range(choose.randrange(1, 5)):
            choose.choice(CHANGES)(data, choose, seeds)
        yield bytes(data[:INPUT_BYTES_MAX])


def flip_bit(data: bytearray, choose: random.Random, _seeds: Sequence[bytes]) -> None:
    if data:
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)


def set_byte(data: bytearray, choose: random.Random, _seeds: Sequence[bytes]) -> None:
    if data:
        data[choose.randrange(len(data))] = choose.choice(INTERESTING)


def truncate(data: bytearray, choose: random.Random, _seeds: Sequence[bytes]) -> None:
    del data[choose.randrange(len(data) + 1) :]


def remove(data: bytearray, choose: random.Random, _seeds: Sequence[bytes]) -> None:
    start = choose.randrange(len(data) + 1)
    del data[start : start + choose.randrange(1, 9)]


def duplicate(data: bytearray, choose: random.Random, _seeds: Sequence[bytes]) -> None:
    start = choose.randrange(len(data) + 1)
    end = choose.randrange(start, len(data) + 1)
    data[end:end] = data[start:end]


def splice(data: bytearray, choose: random.Random, seeds: Sequence[bytes]) -> None:
    other = choose.choice(seeds)
    data[choose.randrange(len(data) + 1) :] = other[choose.randrange(len(other) + 1) :]


def append(data: bytearray, choose: random.Random, seeds: Sequence[bytes]) -> None:
    data += choose.choice(seeds)[1:]  # behind the byte that selects options


def edit_length(data: bytearray, choose: random.Random, _seeds: Sequence[bytes]) -> None:
    """Take any 1, 2, 4 or 8 bytes for a length: set it, shift it, or make it fit what follows."""
    size = choose.choice((1, 2, 4, 8))
    if len(data) < size:
        return
    start = choose.randrange(len(data) - size + 1)
    field = slice(start, start + size)
    order = choose.choice(ORDERS)
    value = choose.choice(
        (
            choose.choice(LENGTHS),
            int.from_bytes(data[field], order) + choose.choice((-1, 1)),
            len(data) - start - size + choose.choice((-1, 0, 1)),
        )
    )
    data[field] = (value % (1 << 8 * size)).to_bytes(size, order)


Change = Callable[[bytearray, random.Random, Sequence[bytes]], None]

CHANGES: Sequence[Change] = (
    flip_bit,
    set_byte,
    truncate,
    remove,
    duplicate,
    splice,
    append,
    edit_length,
    edit_length,
)
