from array import array
from collections.abc import Iterable

from penstock.model import ByteOrder

class Sender:
    """The sender of a batch: its Rheos client id (16 bytes) and its fleximq client id (32 bits)."""

    def __init__(self, uuid: bytes, number: int) -> None: ...
    @property
    def uuid(self) -> bytes: ...
    @property
    def number(self) -> int: ...

class Batch:
    """A run of publish frames as columns over the buffer they were received in.

    The batch borrows the buffer from the scan that fills it until `clear` or the next scan. A
    batch filled by `stored.load` has messages of any protocol, as they are in the log. Some of its
    rows may be hidden: they are private or not a publish, and cannot be encoded.
    """

    rows_max: int
    """How many rows the next scan may fill in."""

    timestamp_us: int
    """When the broker received these messages: microseconds since the epoch. The owner sets it."""

    lends: bool
    """Whether encoders may return a `Gathered` for large values, instead of a copy of them. The
    owner sets it after each scan, if the frames are written before the batch is cleared."""

    def __init__(self, *, rows_max: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def protocol(self) -> int:
        """The number of the frames' `Protocol`; 0 for an empty batch.

        256 for stored messages: each has a protocol of its own, see `row_protocol`.
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
        """Remove all rows and release the buffer; raise RuntimeError while it is in use."""

    def topic_id(self, row: int) -> int:
        """Return the id of a row's topic; 0xFFFFFFFF in a hidden row with an unknown topic."""

    def value(self, row: int) -> bytes:
        """Return the payload as subscribers of other protocols receive it."""

    def sender(self, row: int) -> Sender: ...
    def frame(self, row: int) -> bytes | None:
        """Return the whole frame for protocols that deliver frames unchanged, else None."""

    def headers(self, row: int) -> bytes | None:
        """Return the header array in `order`: u16 count, then u32 length and bytes of each part.

        None where the protocol has no headers.
        """

    def find_header(self, name: bytes, *, first_row: int = 0) -> tuple[int, bytes] | None:
        """Return the first row from `first_row` on that has a header, and its value; None if none.

        Hidden rows are ignored. Of several headers of this name in a row the first counts.
        """

    def message_id(self, row: int) -> int | None:
        """Return the message id that the acknowledgment repeats; None where there is none."""

    def created(self, row: int) -> int | None:
        """Return the sender's timestamp in seconds since the epoch; None where there is none."""

    def status(self, row: int) -> int | None:
        """Return the status where a message has one."""

    def row_protocol(self, row: int) -> int:
        """Return the number of a message's `Source`; 0 if unknown."""

    def row_timestamp_us(self, row: int) -> int:
        """Return when the broker received a message: microseconds since the epoch."""

    def times_and_senders(self, rows: memoryview[int]) -> bytes:
        """Return when the broker received messages, then their senders' numbers.

        Times are 8 bytes each, as in `row_timestamp_us`, numbers 4 bytes, little-endian.
        """

    def form(self, row: int) -> int | None:
        """Return the `Form` of a stored message; None for one that was scanned."""

    def hidden(self, row: int) -> bool:
        """Return whether a stored message is never delivered: it is private, or not a publish."""

    def routes(self, route_of_topic: array[int], *, route_count: int) -> tuple[int, ...]:
        """Return the distinct routes of the batch's topics in ascending order.

        `route_of_topic` has an unsigned 32-bit route for each topic id, below `route_count`; topics
        beyond its end have route 0. Hidden rows are ignored.
        """

    def kinds(
        self, route_of_topic: array[int], kind_of_route: array[int], *, kind_count: int
    ) -> tuple[int, ...]:
        """Return the distinct kinds of the routes of the batch's topics, as `routes` does.

        `kind_of_route` has a kind for each route, below `kind_count`; routes beyond its end have
        kind 0.
        """

    def select(
        self,
        route_of_topic: array[int],
        wanted: bytes | bytearray | None,
        *,
        kind_of_route: array[int] | None = None,
        value_bytes_max: int = ...,
    ) -> memoryview[int]:
        """Return the rows whose route is marked in `wanted` and whose value fits `value_bytes_max`.

        `wanted` has one byte for each route, or with `kind_of_route` for each kind of route; those
        beyond its end are not wanted. None stands for all routes. Hidden rows are never selected.
        """

    def select_piece(
        self,
        route_of_topic: array[int],
        wanted: bytes | bytearray | None,
        *,
        kind_of_route: array[int] | None = None,
        first_row: int = 0,
        last_row: int | None = None,
        bytes_max: int = ...,
        value_bytes_max: int = ...,
        without_sender: int = 0,
        own_from_row: int = 0,
    ) -> tuple[memoryview[int], int]:
        """Select one piece as `select` does: return its rows and the first row of the next piece.

        The piece starts at `first_row`. It ends before `last_row` (None: the end of the batch), or
        after the row with which its frames reach `bytes_max`. A frame counts as its value, topic
        name and headers plus 64 bytes. From `own_from_row` on, rows of the sender with the number
        `without_sender` are skipped; 0 skips none.
        """
