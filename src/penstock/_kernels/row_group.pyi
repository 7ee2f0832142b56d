from collections.abc import Collection, Sequence

class MessageLayout:
    """The metadata of a message, with the positions of what differs between messages.

    `texts` are start and end of the custom metadata of a record batch: base offset, count, synced,
    previous, zeros, checksums and its own checksum. A dictionary has none. Raise ValueError if a
    position is not inside the metadata.
    """

    def __init__(
        self,
        metadata: bytes,
        *,
        body_length: int,
        length: int,
        nodes: int,
        buffers: int,
        texts: tuple[tuple[int, int], ...] = (),
    ) -> None: ...
    @property
    def has_texts(self) -> bool:
        """Whether it is the layout of a record batch."""

def dictionary_message(layout: MessageLayout, names: Collection[bytes]) -> bytes:
    """Return the IPC message of a dictionary."""

class RowGroupEncoder:
    """Encodes row groups with the layouts of the dictionaries and of the record batch.

    Raise ValueError for layouts of other messages.
    """

    def __init__(
        self, topics: MessageLayout, senders: MessageLayout, batch: MessageLayout
    ) -> None: ...
    def encode(
        self,
        topics: Collection[bytes],
        senders: Collection[bytes],
        buffers: Sequence[memoryview | bytes | int],
        *,
        base_offset: int,
        count: int,
        header_count: int,
        null_counts: tuple[int, int, int, int],
        previous: int,
        synced: int,
    ) -> tuple[list[memoryview | bytes], int, int]:
        """Return consecutive buffers, their size in total and the checksum of the row group.

        Small columns are copied, into one buffer or into those before and after the values; the
        others are the buffers of the columns. Raise ValueError if there are not as many buffers as
        a record batch has.
        """
