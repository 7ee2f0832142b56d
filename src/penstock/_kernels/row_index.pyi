from array import array

HEAD: int
"""Bytes of the head of a record."""
ENTRY_BYTES: int
"""Bytes of an entry: the hash of the topic, the row in 16 bits, and the checksum of the record."""
NOT_LISTED: int
"""The slot of a topic whose rows are left out."""

def topic_hashes(
    data: bytes | bytearray | memoryview, dictionary: tuple[int, int, int, int], entries: int
) -> list[int]:
    """Return the CRC32C of each name of a dictionary: start and length of offsets, and of bytes.

    Raise ValueError if a name is not inside the data.
    """

def list_rows(
    data: bytes | bytearray | memoryview,
    layout: tuple[int, ...],
    topic_dictionary: tuple[int, int, int, int],
    sender_dictionary: tuple[int, int, int, int],
    slots: array[int],
    hashes: array[int],
    entries: bytearray,
    *,
    count: int,
    base_offset: int,
) -> None:
    """Write the entry of each row of a listed topic into `entries`.

    `slots` has the place of the next entry of each topic of the dictionary, and counts up; topics
    with NOT_LISTED are left out. Raise ValueError if `data` is not a row group. Runs without the
    GIL.
    """
