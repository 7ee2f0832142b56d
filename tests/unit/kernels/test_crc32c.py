"""CRC32C: the published check value, the other way of computing it, and any cut of the bytes."""

import random

import google_crc32c
import pytest

from penstock._kernels.crc32c import crc32c, crc32c_tables


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
