"""What the broker needs from outside, as protocols: time, a connection's two ends, a log."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from typing import Protocol as Port

from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.errors import LogError
from penstock.model import Durability, Form, Kind
from penstock.protocols import Protocol

__all__ = [
    "Clock",
    "GroupColumns",
    "Handler",
    "Link",
    "LogReader",
    "LogWriter",
    "Prepared",
    "Receipt",
    "Record",
    "Stored",
]


GroupColumns: TypeAlias = tuple[
    int,
    int,
    int,
    tuple[int, int, int, int],
    Sequence[memoryview | bytes | int],
    Sequence[bytes],
    Sequence[bytes],
]
"""What `storage.arrow.format.segment.Columns` is made of."""


class Clock(Port):
    """Time, so that tests can bring their own."""

    def now_us(self) -> int:
        """Return microseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from any start."""


class Link(Port):
    """The broker's end of a connection: a transport provides it, a gateway uses it."""

    @property
    def connection(self) -> int:
        """The connection's number in logs and in the API."""

    @property
    def peer(self) -> str:
        """The peer for logs: an address, a path or a process."""

    @property
    def buffered(self) -> int:
        """Bytes written that the system has not taken yet."""

    @property
    def congested(self) -> bool:
        """Whether too much is buffered; `Handler.drained` is called when it is not any more."""

    def set_handler(self, handler: "Handler") -> None:
        """Replace the handler that the transport calls."""

    def write(self, data: bytes) -> None:
        """Send `data` after all earlier writes; drop it after `close`."""

    def pause(self) -> None:
        """Call `Handler.received` no more until `resume`, also for bytes that arrived before.

        Each `pause` needs its own `resume`.
        """

    def resume(self) -> None:
        """Undo one `pause`; after the last, offer waiting bytes and read again."""

    def close(self) -> None:
        """Close the connection once all written bytes are sent."""

    def abort(self) -> None:
        """Close the connection at once."""


class Handler(Port):
    """Processes a connection's input. Gateways implement it, transports call it."""

    def received(self, data: memoryview) -> int:
        """Process bytes of the peer; return how many were taken.

        The rest is offered again, with more bytes. `data` is borrowed for the call.
        """

    def drained(self) -> None:
        """Continue sending: the link is no longer congested."""

    def ended(self) -> None:
        """Handle half-close: the peer sends nothing more, but may still read.

        The handler closes the link after its last reply.
        """

    def lost(self, reason: str) -> None:
        """Release the connection, which is closed. No other method is called after this."""


class Receipt(NamedTuple):
    """What a log gives for messages it has taken: their place, and when they are safe.

    Messages that are committed together share a group. Groups are numbered in order from 1.
    """

    first_offset: int
    group: int
    durability: Durability


class Record(NamedTuple):
    """A message that no batch carries: requests and what else goes past the kernels.

    `private` marks one that is not for every subscriber of its topic and is left out of replay.
    """

    protocol: Protocol
    kind: Kind
    topic: str
    value: bytes
    sender: Sender
    sender_name: str
    timestamp_us: int
    form: Form = Form.PLAIN
    private: bool = False
    headers: tuple[tuple[str, bytes], ...] = ()
    correlation: str | None = None
    status: int | None = None


class Prepared(Port):
    """Rows of a table, ready to be committed as a group of their own.

    All of them are publishes of one sender, whose `client` number must be set before they go.
    """

    client: int

    def __len__(self) -> int:
        """How many there are."""

    @property
    def value_bytes(self) -> int:
        """Bytes of all values."""

    def stamp(self, timestamp_us: int) -> None:
        """Say when the broker takes them: microseconds since the epoch."""

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """Fill `batch` with all of them, interning topics; once. Raise TopicTableFull."""

    def finish(self, base_offset: int, *, log_id: int, partition: int) -> GroupColumns:
        """Return them as the columns of a group whose first message has `base_offset`."""


class LogWriter(Port):
    """Where messages go before anyone is told that they are safe. One thread calls it.

    The three group numbers move only in that thread, and whoever owns the log then calls
    `Broker.settle`. A group at or below `failed_group` that was not safe before has failed: all its
    messages, and they will never be.
    """

    @property
    def log_id(self) -> int:
        """48 bits that tell this log from others; part of every message id."""

    @property
    def partition(self) -> int:
        """The partition that this writer fills."""

    @property
    def next_offset(self) -> int:
        """The offset that the next message gets. Offsets only grow, and none is given twice."""

    @property
    def written_group(self) -> int:
        """Groups up to this one are with the system: they outlive this process."""

    @property
    def durable_group(self) -> int:
        """Groups up to this one are on disk."""

    @property
    def failed_group(self) -> int:
        """Groups up to this one are settled: those that were not safe when it moved failed."""

    @property
    def crowded(self) -> bool:
        """Whether so much waits for the disk that publishers should wait too."""

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        """Take all rows of `batch`, copying what it keeps; raise LogUnavailable if it cannot.

        `sender_name` is what the record schema says of who sent them; Rheos rows have their own.
        """

    def append_record(self, record: Record) -> Receipt:
        """Take one message that is not in a batch; raise LogUnavailable if it cannot."""

    def append_group(self, group: Prepared) -> Receipt:
        """Take rows that are prepared, to be on disk; raise LogUnavailable if it cannot."""

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        """Remember a topic that was made without a message; raise LogUnavailable if it cannot."""


class Stored(Port):
    """Messages read back from a log, as many as were committed in one piece."""

    @property
    def base_offset(self) -> int:
        """The offset of the first."""

    @property
    def count(self) -> int:
        """How many there are."""

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """Fill `batch` with all of them, interning topics; rows stand in the order of offsets."""


class LogReader(Port):
    """History, for those who missed it. The event loop's thread calls it and is called back."""

    @property
    def horizon(self) -> int:
        """The first offset that can be read."""

    @property
    def end(self) -> int:
        """One past the last offset that can be read: what is behind it is not written yet."""

    def fetch(self, offset: int, then: Callable[[Stored | LogError], None]) -> None:
        """Read the messages that `offset` is among; call `then` with them, or with what is wrong.

        OffsetBelowHorizon, OffsetPastEnd, or LogDamaged, which says where readable history goes on.
        """

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """Call `then` with the first offset that was taken at or after a time, or with `end`."""
