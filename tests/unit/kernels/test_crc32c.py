"""CRC32C: the published check value, the other way of computing it, and any cut of the bytes."""

import random

import google_crc32c
import pytest

from penstock._kernels.crc32c import check_buffers, crc32c, crc32c_each, crc32c_tables


def test_the_check_value_of_the_catalogue() -> None:
    assert crc32c([b"123456789"]) == 0xE3069283


def test_vectors_of_rfc_3720() -> None:
    assert crc32c([bytes(32)]) == 0x8A9136AA
    assert crc32c([b"\xff" * 32]) == 0x62A8AB43
    assert crc32c([bytes(range(32))]) == 0x46DD794E
    assert crc32c([]) == 0


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000, 24_571, 100_003])
def test_both_ways_agree_with_another_implementation_for_every_cut(size: int) -> None:
    data = random.Random(size).randbytes(size)
    expected = google_crc32c.value(data)
    assert crc32c_tables(data) == expected
    for cut in {0, 1, size // 3, size // 2, size}:
        assert crc32c([data[:cut], b"", memoryview(data)[cut:]]) == expected


def test_each_buffer_has_a_checksum_with_its_padding() -> None:
    data = random.Random(1).randbytes(40_000)
    parts = [data[:size] for size in (0, 1, 7, 8, 9, 1000, 40_000)]
    padded = [part + bytes(-len(part) % 8) for part in parts]
    assert crc32c_each(parts) == [google_crc32c.value(part) for part in padded]
    assert crc32c_each([]) == []


def test_buffers_with_a_gap_an_overlap_or_a_false_checksum_are_refused() -> None:
    # Two dictionaries of 8 bytes, metadata of 16, zeros of 8, buffers of 16 and 5 bytes.
    data = bytes(range(1, 33)) + bytes(8) + bytes(range(1, 25))
    starts = (0, 8, 16, 32)
    layout = (32, 8, 40, 16, 32, 3, 56, 5, 64, 0)
    covered = [(0, 8), (8, 16), (32, 40), (40, 56), (32, 40), (56, 64), (0, 0)]
    right = tuple(google_crc32c.value(data[first:last]) for first, last in covered)

    def check(
        layout: tuple[int, ...] = layout, checksums: tuple[int, ...] = right, zeros: int = 8
    ) -> bool:
        return check_buffers(data, starts, 64, layout, checksums, zeros=zeros)

    assert check()
    for number in range(len(right)):
        changed = list(right)
        changed[number] ^= 1
        assert not check(checksums=tuple(changed)), number
    assert not check(checksums=right[:-1])
    assert not check(zeros=0)
    assert not check(zeros=40)
    assert not check((32, 8, 40, 8, 32, 3, 56, 5, 64, 0)), "8 bytes are in no buffer"
    assert not check((32, 8, 40, 16, 32, 3, 48, 5, 64, 0)), "two buffers overlap"
    assert not check((32, 8, 40, 16, 32, 3, 56, 50, 64, 0)), "a buffer is too long"
    assert not check((24, 8, 40, 16, 32, 3, 56, 5, 64, 0)), "a buffer is before the body"
