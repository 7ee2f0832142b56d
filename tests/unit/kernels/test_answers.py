"""Runs of LamaMQ answers: the kernel finds what the plain loop over them finds."""

import random

import pytest

from penstock._kernels import lamamq
from penstock.model import ByteOrder

TOP = 0x8000_0000


def plain_answers(data: bytes, start: int, order: ByteOrder) -> tuple[int, int]:
    """Return what `lamamq.answers` promises, answer by answer."""
    first = count = 0
    while len(data) - start >= 5:
        identifier = int.from_bytes(data[start : start + 4], order)
        if not identifier & TOP or data[start + 4]:
            break
        if not count:
            first = identifier
        elif identifier != first + count:
            break
        count += 1
        start += 5
    return first & ~TOP, count


def answer(identifier: int, order: ByteOrder, error: int = 0) -> bytes:
    return identifier.to_bytes(4, order) + bytes([error])


@pytest.mark.parametrize("order", ["big", "little"])
def test_the_kernel_finds_the_run_that_the_plain_loop_finds(order: ByteOrder) -> None:
    randomness = random.Random(5)
    lengths = set()
    for _ in range(2000):
        identifier = randomness.choice([TOP, TOP | 7, 0xFFFF_FFFE, TOP - 2])
        data = bytearray(randomness.randrange(4))
        start = len(data)
        for _ in range(randomness.randrange(6)):
            data += answer(identifier, order, randomness.random() < 0.1)
            identifier = (identifier + (randomness.random() < 0.95)) & 0xFFFF_FFFF
        del data[len(data) - randomness.randrange(min(5, 1 + len(data) - start)) :]
        found = lamamq.answers(bytes(data), start, order=order)
        count = plain_answers(bytes(data), start, order)[1]
        assert found[1] == count
        if count:
            assert found == plain_answers(bytes(data), start, order)
        lengths.add(count)
    assert lengths == set(range(6)), "too little happened to mean anything"


def test_a_start_behind_the_end_has_no_run() -> None:
    assert lamamq.answers(b"", 0, order="big") == (0, 0)
    assert lamamq.answers(answer(TOP, "big"), 9, order="big") == (0, 0)
