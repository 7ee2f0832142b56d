from collections.abc import Collection, Iterable, Iterator
from typing import Self

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable

def follow_columns(
    base_offset: int, count: int, *, log_id: int, partition: int
) -> tuple[bytes, bytes, bytes]:
    """Return the columns of a group that depend on its base offset only.

    They are the offsets, and the ends and the text of the message ids, as Arrow's buffers.
    """

class Names(Collection[bytes]):
    """An Arrow string column: a leading zero and the end of each string, and the joined bytes."""

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
    """Index of each topic in the current block's dictionary; the blocks of a log share it."""

class Block:
    """Rows to be written to the log, as columns. One thread fills it, then another finishes it."""

    def __init__(self, slots: TopicSlots, *, rows_max: int = ..., bytes_max: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def value_bytes(self) -> int:
        """Bytes of all values and headers."""

    @property
    def held_bytes(self) -> int:
        """Memory of all rows, about: also of empty ones, and of their headers."""

    @property
    def full(self) -> bool:
        """Whether the block accepts no more rows: by number, or by bytes of any kind."""

    @property
    def durability(self) -> int:
        """The strongest durability that a row of the last `append` requires."""

    def clear(self) -> None:
        """Remove all rows and become the newest block; views from `finish` become invalid."""

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
        """Add as many rows as fit, from `first_row` on; return how many.

        A topic beyond the end of `durability_of_topic` requires `durability`. The sender of a Rheos
        row is its own client id, that of other rows is `sender_name`. Raise RuntimeError if this is
        not the newest block, ValueError if a row is not inside the batch's data.
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
        """Return the fields of `storage.arrow.format.segment.Columns`.

        The rows get the offsets from `base_offset` on. Views are valid until `clear`.
        """
