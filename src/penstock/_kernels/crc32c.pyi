from collections.abc import Iterable

def crc32c(buffers: Iterable[bytes | bytearray | memoryview]) -> int:
    """Return the CRC32C of the concatenated buffers. Runs without the GIL."""

def crc32c_each(buffers: Iterable[bytes | bytearray | memoryview]) -> list[int]:
    """Return the CRC32C of each buffer, padded with zeros to a multiple of 8; without the GIL."""

def check_buffers(
    data: bytes | bytearray | memoryview,
    starts: tuple[int, int, int, int],
    end: int,
    layout: tuple[int, ...],
    checksums: tuple[int, ...],
    *,
    zeros: int,
) -> bool:
    """Return whether the checksums of dictionaries and buffers of a row group are correct.

    `starts` are the positions of both dictionaries, of the record batch and of its body, whose
    first `zeros` bytes buffers share. False also if a byte of the body is in no buffer.
    """

def crc32c_tables(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC32C of one buffer without the processor's CRC32C instruction."""
