from array import array

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

    The buffer is borrowed from the scan that fills the batch until `clear` or the next scan.
    """

    rows_max: int
    """How many rows the next scan may fill in."""

    timestamp_us: int
    """When the broker took these messages: microseconds since the epoch. Set by the owner."""

    def __init__(self, *, rows_max: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def protocol(self) -> int:
        """The number of the `Protocol` that the frames came in; 0 for an empty batch."""

    @property
    def order(self) -> ByteOrder: ...
    def clear(self) -> None:
        """Forget all rows and let go of the buffer; raise RuntimeError while it is in use."""

    def topic_id(self, row: int) -> int: ...
    def value(self, row: int) -> bytes:
        """Return the payload as subscribers of other protocols receive it."""

    def sender(self, row: int) -> Sender: ...
    def frame(self, row: int) -> bytes | None:
        """Return the whole frame, for protocols whose frames are passed on as they came."""

    def headers(self, row: int) -> bytes | None:
        """Return LamaMQ's header array as it came, its count included; None in other protocols."""

    def message_id(self, row: int) -> int | None:
        """Return LamaMQ's message id; None in other protocols."""

    def created(self, row: int) -> int | None:
        """Return LamaMQ's creation time in seconds since the epoch; None in other protocols."""

    def status(self, row: int) -> int | None:
        """Return fleximq's status where a message has one."""

    def routes(self, route_of_topic: array[int], *, route_count: int) -> list[int]:
        """Return the distinct routes of the batch's topics, in the order they come up.

        `route_of_topic` has an unsigned 32-bit route for each topic id, below `route_count`; topics
        beyond its end have route 0.
        """

    def select(
        self, route_of_topic: array[int], wanted: bytes | bytearray, *, value_bytes_max: int = ...
    ) -> memoryview[int]:
        """Return the rows whose route is marked in `wanted` and whose value is not too long.

        `wanted` has one byte for each route; routes beyond its end are not wanted.
        """
