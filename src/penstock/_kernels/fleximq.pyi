from collections.abc import Callable

from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable

class HeaderCache:
    """Parsed headers of PUB messages by their bytes; one thread uses it at a time.

    `publication` parses a header that is new: it returns topic and status, or None for one that
    must not be scanned. A cache that has `capacity` headers or `size_max` bytes is emptied, also
    when a topic was removed. Of headers above `header_bytes_max`, only the last is kept.
    """

    def __init__(
        self,
        publication: Callable[[bytes], tuple[str, int | None] | None],
        *,
        capacity: int = ...,
        size_max: int = ...,
        header_bytes_max: int = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes that the cached headers take; the long one does not count."""

    @property
    def size_max(self) -> int: ...
    @property
    def header_bytes_max(self) -> int: ...

def scan(
    data: bytes | bytearray | memoryview,
    start: int,
    batch: Batch,
    topics: TopicTable,
    sender: Sender,
    *,
    headers: HeaderCache,
    learn_topics: bool = True,
    permits: bytes | bytearray | None = None,
    header_bytes_max: int = ...,
    message_bytes_max: int = ...,
    payload_depth_max: int = ...,
) -> int:
    """Fill `batch` with the run of PUB messages at `start`; return where the run ends.

    It ends before the first message that is incomplete, not a PUB, routed, invalid or has a client
    id other than the sender's number, at a topic that is unknown (with `learn_topics` only if it
    cannot be interned) or not marked in `permits`, and when the batch is full.
    """

def encode(batch: Batch, topics: TopicTable, *, rows: memoryview[int] | None = None) -> bytes:
    """Return the PUB messages of `rows`, or of all rows."""

def messagepack_end(data: bytes | bytearray | memoryview, depth_max: int) -> int | None:
    """Return where the MessagePack value at the start of `data` ends; None if it is invalid.

    `depth_max` is at most 512. The number of elements has no limit.
    """
