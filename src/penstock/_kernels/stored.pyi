from collections.abc import Sequence

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable

BUFFERS: int
"""How many buffers the record batch of a group has."""

class SegmentWords:
    """The dictionaries of protocol and kind that a segment has, as the kernel uses them.

    Labels that this version does not know are kept apart: such messages are delivered as plain
    values, and kinds other than `publish` are never delivered.
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
) -> None:
    """Fill `batch` with the `count` messages of a group of the log.

    `data` is borrowed as a scan borrows it, and must not change meanwhile. `layout` has two numbers
    for each of Arrow's buffers, in the order of the record schema: where it starts in `data`, and
    its length; the validity of a column without nulls has length 0. A dictionary is four numbers,
    for its offsets and its bytes; `words` are those of the segment's head.

    Topics that subscribers may see are interned; TopicTableFull is raised where one does not fit.
    Raise ValueError for anything that is not a group, which leaves the batch empty: nothing outside
    `data` is read, whatever is in it.
    """
