from collections.abc import Iterable

def crc32c(buffers: Iterable[bytes | bytearray | memoryview]) -> int:
    """Return the CRC32C of the concatenated buffers. Runs without the GIL."""

def crc32c_tables(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC32C of one buffer without the processor's CRC32C instruction."""
