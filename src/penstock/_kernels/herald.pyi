from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.model import ByteOrder

def scan(
    data: bytes | bytearray | memoryview,
    start: int,
    batch: Batch,
    topics: TopicTable,
    sender: Sender,
    *,
    order: ByteOrder,
    permits: bytes | bytearray | None = None,
    payload_bytes_max: int = ...,
) -> int:
    """Fill `batch` with the run of PUBLISH frames at `start`; return where the run ends.

    It ends before the first frame that is incomplete, not a PUBLISH, not valid, or on a channel
    that no topic is bound to or whose topic is not marked in `permits` (a byte for each topic id),
    and when the batch is full.
    """

def encode(
    batch: Batch, topics: TopicTable, *, order: ByteOrder, rows: memoryview[int] | None = None
) -> bytes:
    """Return the MESSAGE frames of `rows`, or of all rows.

    Raise ValueNotDeliverable for a row whose topic has no channel or whose value is too long.
    """

def group_frames(
    data: bytes | bytearray | memoryview, *, order: ByteOrder, together_max: int, alone_max: int
) -> tuple[list[tuple[int, int]], int]:
    """Return (start, end) of groups of adjacent whole frames, and how many frames fit no group.

    Frames share a group up to `together_max` bytes; a larger one is alone, up to `alone_max`. Raise
    ValueError if `data` is not whole frames.
    """
