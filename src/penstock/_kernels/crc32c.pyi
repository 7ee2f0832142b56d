from collections.abc import Iterable

def crc32c(buffers: Iterable[bytes | bytearray | memoryview]) -> int:
    """Return the CRC32C of all buffers, one behind the other. Runs without the GIL."""

def crc32c_tables(data: bytes | bytearray | memoryview) -> int:
    """Return the same for one buffer as a processor does that has no instruction for it."""
