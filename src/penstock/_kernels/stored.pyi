from array import array
from collections.abc import Sequence

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable

BUFFERS: int
"""Number of Arrow buffers in the record batch of a group."""

class SegmentWords:
    """A segment's dictionaries of protocol and kind, in the form the kernel uses.

    Messages with an unknown protocol label are delivered as plain values. Kinds other than
    `publish`, and unknown ones, are never delivered.
    """

    def __init__(self, protocols: Sequence[str], kinds: Sequence[str]) -> None: ...

def load(
    batch: Batch,
    topics: TopicTable,
    data: bytes | bytearray | memoryview,
    layout: Sequence[int],
    topic_dictionary: Sequence[int],
    sender_dictionary: Sequence[int],
    words: SegmentWords,
    *,
    count: int,
    published: bool = False,
    floors: array[int] | None = None,
) -> None:
    """Fill `batch` with the `count` messages of a group of the log.

    The batch borrows `data`, as in a scan; it must not change until the batch is cleared. `layout`
    has two numbers for each Arrow buffer, in the order of the record schema: its start in `data`
    and its length. The validity of a column without nulls has length 0. A dictionary is four
    numbers: start and length of its offsets, then of its bytes. `words` come from the segment's
    head. `floors` has a row for each topic of the dictionary: rows of the topic before it are
    hidden.

    Topics of deliverable rows are interned. Rows of a topic that was removed are not delivered,
    unless they are `published` now, which creates it again. Raise TopicTableFull if one does not
    fit, and ValueError if `data` is not a group; the batch is empty then. Nothing outside `data` is
    read.
    """
