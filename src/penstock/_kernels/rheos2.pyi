from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable

def scan(
    data: bytes | bytearray | memoryview,
    start: int,
    batch: Batch,
    topics: TopicTable,
    sender: Sender,
    *,
    learn_topics: bool = True,
    permits: bytes | bytearray | None = None,
    body_bytes_max: int = ...,
) -> int:
    """Fill `batch` with the run of PUBLISH events at `start`; return where the run ends.

    It ends before the first event that is incomplete, not a PUBLISH or not valid, at a topic
    that is unknown (with `learn_topics` only if it cannot be interned) or not marked in
    `permits` (a byte for each topic id), and when the batch is full of rows or of senders.
    """

def encode(batch: Batch, topics: TopicTable, *, rows: memoryview[int] | None = None) -> bytes:
    """Return the PUBLISH events of `rows`, or of all rows."""

def acknowledge(count: int, *, log_id: int, partition: int, first_offset: int) -> bytes:
    """Return `count` SUCCESS acknowledgments for messages at consecutive offsets."""

def crc32(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 of `data`, as zlib does."""

def crc32_by_tables(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 of `data` without the processor's instructions for it."""
