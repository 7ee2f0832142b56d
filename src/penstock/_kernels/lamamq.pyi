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
    learn_topics: bool = True,
    permits: bytes | bytearray | None = None,
    answers_awaited: bool = False,
    headers_max: int = ...,
    headers_bytes_max: int = ...,
    payload_bytes_max: int = ...,
) -> int:
    """Fill `batch` with the run of push messages at `start`; return where the run ends.

    It ends before the first message that is incomplete, not a push or not valid, at a topic that
    is unknown (with `learn_topics` only if it cannot be interned) or not marked in `permits` (a
    byte for each topic id), and when the batch is full. While `answers_awaited`, it also ends at a
    message id with its top bit set: that may be the answer to a hook call.
    """

def encode(
    batch: Batch,
    topics: TopicTable,
    *,
    order: ByteOrder,
    first_message_id: int,
    rows: memoryview[int] | None = None,
) -> bytes:
    """Return the forward messages of `rows`, or of all rows.

    Message ids count up from `first_message_id`, with the top bit set, as the broker's ids have.
    """

def acknowledge(batch: Batch) -> bytes:
    """Return the success answers to all pushes of `batch`."""

def answers(
    data: bytes | bytearray | memoryview, start: int, *, order: ByteOrder
) -> tuple[int, int]:
    """Return the first message id of a run of success answers, without its top bit, and its length.

    The run begins at `start`. All ids have their top bit set, and each is one more than the one
    before. It is 0 if there is no such answer, or not all of it.
    """
