from array import array
from collections.abc import Iterable

from penstock.model import ByteOrder

class Sender:
    """Who a batch comes from, as Rheos (16 bytes) and fleximq (32 bits) name a client."""

    def __init__(self, uuid: bytes, number: int) -> None: ...
    @property
    def uuid(self) -> bytes: ...
    @property
    def number(self) -> int: ...

class Batch:
    """A run of publish frames as columns over the buffer they were received in.

    The buffer is borrowed from the scan that fills the batch until `clear` or the next scan. A
    batch that `stored.load` fills has messages of any protocol, as the log keeps them; some of its
    rows may be hidden: those are not for every subscriber and cannot be encoded.
    """

    rows_max: int
    """How many rows the next scan may fill in."""

    timestamp_us: int
    """When the broker took these messages: microseconds since the epoch. Set by the owner."""

    def __init__(self, *, rows_max: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def protocol(self) -> int:
        """The number of the `Protocol` that the frames came in; 0 for an empty batch.

        256 for stored messages, of which each has its own: see `row_protocol`.
        """

    @property
    def order(self) -> ByteOrder:
        """The byte order of the frames; network order for stored messages."""

    def fill(
        self,
        data: bytes | bytearray | memoryview,
        rows: Iterable[tuple[int, int, int]],
        *,
        protocol: int,
        order: ByteOrder,
        sender: Sender,
    ) -> None:
        """Fill the batch from `data` with rows of topic id, value position and value length.

        For protocols without a kernel of their own. Raise ValueError for a position outside `data`
        or more rows than `rows_max`; then the batch is empty.
        """

    def clear(self) -> None:
        """Forget all rows and let go of the buffer; raise RuntimeError while it is in use."""

    def topic_id(self, row: int) -> int:
        """Return the id of a row's topic; 0xFFFFFFFF in a hidden row whose topic is not known."""

    def value(self, row: int) -> bytes:
        """Return the payload as subscribers of other protocols receive it."""

    def sender(self, row: int) -> Sender: ...
    def frame(self, row: int) -> bytes | None:
        """Return the whole frame, for protocols whose frames are passed on as they came."""

    def headers(self, row: int) -> bytes | None:
        """Return the header array in `order`: u16 count, then u32 length and bytes of each part.

        None where the protocol has no headers.
        """

    def message_id(self, row: int) -> int | None:
        """Return the number that the frame is answered by; None where there is none."""

    def created(self, row: int) -> int | None:
        """Return the sender's own time in seconds since the epoch; None where there is none."""

    def status(self, row: int) -> int | None:
        """Return the status where a message has one."""

    def row_protocol(self, row: int) -> int:
        """Return the number of the `Source` that a message came in; 0 if it is not known."""

    def row_timestamp_us(self, row: int) -> int:
        """Return when the broker took a message: microseconds since the epoch."""

    def form(self, row: int) -> int | None:
        """Return the `Form` of a stored message; None for one that was scanned."""

    def hidden(self, row: int) -> bool:
        """Tell whether a stored message is not for every subscriber: private, or not a publish."""

    def routes(self, route_of_topic: array[int], *, route_count: int) -> list[int]:
        """Return the distinct routes of the batch's topics, in the order they come up.

        `route_of_topic` has an unsigned 32-bit route for each topic id, below `route_count`; topics
        beyond its end have route 0. Hidden rows do not count.
        """

    def select(
        self, route_of_topic: array[int], wanted: bytes | bytearray, *, value_bytes_max: int = ...
    ) -> memoryview[int]:
        """Return the rows whose route is marked in `wanted` and whose value is not too long.

        `wanted` has one byte for each route; routes beyond its end are not wanted. Hidden rows are
        never selected.
        """

    def select_piece(
        self,
        route_of_topic: array[int],
        wanted: bytes | bytearray,
        *,
        first_row: int = 0,
        last_row: int | None = None,
        bytes_max: int = ...,
        value_bytes_max: int = ...,
        without_sender: int = 0,
        own_from_row: int = 0,
    ) -> tuple[memoryview[int], int]:
        """Select as `select` does, but in pieces: return the rows, and the row to go on with.

        The piece begins at `first_row` and ends before `last_row` (None: the last there is), or
        behind the row with which its frames take `bytes_max` or more: values, topic names and
        headers, and 64 bytes a row for the rest. From `own_from_row` on, rows of the sender with
        the number `without_sender` are left out; 0 leaves out none.
        """
