from collections.abc import Collection, Iterable, Iterator
from typing import Self

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable

def follow_columns(
    base_offset: int, count: int, *, log_id: int, partition: int
) -> tuple[bytes, bytes, bytes]:
    """Return the columns of a group that follow from its place: offsets, and message ids.

    Of the latter, first where they end in Arrow's way, then their text.
    """

class Names(Collection[bytes]):
    """Strings as Arrow has them: where each ends, from a zero on, and all of them in one."""

    ends: memoryview | bytes
    data: memoryview | bytes

    def __init__(self, ends: memoryview | bytes, data: memoryview | bytes) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __contains__(self, name: object) -> bool: ...
    @classmethod
    def of(cls, names: Collection[bytes]) -> Self:
        """Return the column of these strings."""

class TopicSlots:
    """Where topics stand in the dictionary of the newest block; the blocks of a log share one."""

class Block:
    """Rows on their way to the log, as columns. One thread fills it, then another finishes it."""

    def __init__(self, slots: TopicSlots, *, rows_max: int = ..., bytes_max: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def value_bytes(self) -> int:
        """Bytes of all values."""

    @property
    def full(self) -> bool:
        """Whether not one row more is taken."""

    @property
    def durability(self) -> int:
        """The strongest durability that a row of the last `append` asks for."""

    def clear(self) -> None:
        """Forget all rows and become the newest block; views that `finish` gave are void."""

    def append(
        self,
        batch: Batch,
        topics: TopicTable,
        first_row: int,
        sender_name: bytes,
        durability_of_topic: bytes | bytearray | None = None,
        *,
        durability: int,
    ) -> int:
        """Add rows from `first_row` on, as many as there is room for; return how many.

        A topic beyond `durability_of_topic` asks for `durability`. Rheos rows are named by their
        own client ids, others by `sender_name`. Raise RuntimeError if this is not the newest block.
        """

    def append_record(
        self,
        *,
        protocol: int,
        kind: int,
        topic: bytes,
        value: bytes,
        sender: bytes,
        client: int,
        timestamp_us: int,
        form: int = ...,
        private: bool = ...,
        headers: Iterable[tuple[str, bytes]] = ...,
        correlation: bytes | None = ...,
        status: int | None = ...,
        key: bytes | None = ...,
        created_us: int | None = ...,
    ) -> bool:
        """Add one row; return False if there is no room for it."""

    def finish(
        self, base_offset: int, *, log_id: int, partition: int
    ) -> tuple[
        int,
        int,
        int,
        tuple[int, int, int, int],
        list[memoryview | bytes | int],
        Names,
        list[bytes],
    ]:
        """Return the fields of `storage.arrow.format.segment.Columns`; views hold until `clear`.

        The rows get the offsets from `base_offset` on.
        """
