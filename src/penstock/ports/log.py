"""The part of a storage that `core` uses: append messages, settle commits, read history."""

from array import array
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple
from typing import Protocol as Port

from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.errors import LogError
from penstock.model import Durability, Form, Kind
from penstock.ports.services import KnownService
from penstock.ports.sessions import KeptSession
from penstock.ports.topic_filter import TopicFilter
from penstock.protocols import Protocol

__all__ = [
    "EVERY_NODE",
    "Fetched",
    "Follower",
    "KnownTopic",
    "LogReader",
    "LogWriter",
    "Prepared",
    "Receipt",
    "Record",
    "Stored",
]


EVERY_NODE: Final = -1
"""Stands for all other nodes."""


class Receipt(NamedTuple):
    """Result of an append: the first offset, the commit that contains it, and its durability.

    Messages that are written together share a commit. Commits are numbered in order from 1.
    """

    first_offset: int
    commit: int
    durability: Durability


class Record(NamedTuple):
    """One message outside a batch, such as a request or a reply.

    `private` marks a message that is not for every subscriber of its topic; replay leaves it out.
    `nodes` are the other nodes whose clients it is for, or EVERY_NODE. `created_us` is a time that
    the sender has set.
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
    nodes: tuple[int, ...] = ()
    created_us: int | None = None


class Prepared(Port):
    """Rows of a table, prepared by a storage, to be appended to the same storage.

    All rows are publishes of one sender, whose number is `client`.
    """

    client: int

    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    def data_bytes(self) -> int:
        """Bytes of all values, keys, headers and topics."""

    @property
    def held_bytes(self) -> int:
        """Memory of all rows, about."""

    def stamp(self, timestamp_us: int) -> None:
        """Set the time at which the broker takes the rows: microseconds since the epoch."""

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """Fill `batch` with all rows, interning topics; only once. Raise TopicTableFull."""


class LogWriter(Port):
    """Appends messages and reports when they are safe. One thread calls it.

    The three commit numbers move only in that thread; the owner of the log then calls
    `Broker.settle`. A commit at or below `failed_commit` that was not safe before has failed, with
    all its messages.
    """

    @property
    def log_id(self) -> int:
        """48 bits that identify this log; part of every message id."""

    @property
    def partition(self) -> int:
        """The partition that this process writes."""

    @property
    def next_offset(self) -> int:
        """The offset of the next message. Offsets only grow, and none is given twice."""

    @property
    def written_commit(self) -> int:
        """Commits up to this one are with the operating system: they outlive this process."""

    @property
    def durable_commit(self) -> int:
        """Commits up to this one are on disk."""

    @property
    def failed_commit(self) -> int:
        """Commits up to this one are settled: those that were not safe when it moved failed."""

    @property
    def crowded(self) -> bool:
        """Whether so much waits for the disk that publishers should wait too."""

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        """Append all rows of `batch`, copying them; raise LogUnavailable.

        `sender_name` fills the column `sender`; Rheos rows carry their own.
        """

    def append_record(self, record: Record) -> Receipt:
        """Append one message that is not in a batch; raise LogUnavailable."""

    def append_prepared(self, rows: Prepared) -> Receipt:
        """Append rows that this storage has prepared, with durability FSYNC if it keeps history.

        Raise LogUnavailable.
        """

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        """Keep a topic that was created without a message; raise LogUnavailable."""

    def remove_topic(self, name: str) -> Receipt:
        """Keep the fact that a topic was deleted, with durability FSYNC; raise LogUnavailable.

        The topic is still in the topic table.
        """


class Stored(Port):
    """Messages read back from a log: one row group."""

    @property
    def base_offset(self) -> int:
        """Offset of the first message."""

    @property
    def count(self) -> int:
        """Number of messages."""

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """Fill `batch` with all messages in the order of offsets, interning topics.

        Messages of deleted topics, and those that have expired, are in it, but are not delivered.
        """

    def expired(self, since: object, wants: Callable[[str], bool], *, first: int, last: int) -> int:
        """Return how many messages of wanted topics have expired, from row `first` up to `last`.

        `since` is a `LogReader.expiry`: messages that had expired by then are not counted.
        """


class Fetched(NamedTuple):
    """Row groups, in order. No other wanted message is before the offset `end`."""

    groups: Sequence[Stored]
    end: int


class LastFound(NamedTuple):
    """The offset of the last message below `end` of each topic, by the topic's number.

    It is -1 for a topic without a message that can be delivered and read. The table may lack topics
    that were created meanwhile.
    """

    offsets: "array[int]"
    end: int


class KnownTopic(NamedTuple):
    """A topic, the Rheos client id of its creator, and its owner; both are empty if unknown.

    The owner is the principal or address whose limit of topics it counts against.
    """

    name: str
    creator: bytes
    owner: str = ""


class LogReader(Port):
    """Reads one partition without blocking. The event loop's thread calls it and is called back."""

    @property
    def finds_last(self) -> bool:
        """Whether `find_last` finds anything."""

    @property
    def horizon(self) -> int:
        """The first offset that can be read."""

    def horizon_of(self, pattern: str) -> int:
        """Return the first offset that may have a message of a topic that matches a pattern."""

    def expired_below(self, pattern: str) -> int:
        """Return the offset below which messages of topics of a pattern may have been removed.

        Messages that a rule removed because their topic has a later one do not count.
        """

    @property
    def expiry(self) -> object:
        """The expired messages so far, for `Stored.expired`; None if they expire by offset only."""

    @property
    def end(self) -> int:
        """One past the last offset that can be read; later messages are not written yet."""

    def fetch(
        self,
        offset: int,
        then: Callable[[Fetched | LogError], None],
        topics: TopicFilter | None = None,
    ) -> None:
        """Read the row group that contains `offset`, and maybe some that follow; call `then`.

        With `topics`, row groups without a wanted topic may be left out: the first one may begin
        later, and there may be none. `end` is greater than `offset`.

        An error is OffsetBelowHorizon, OffsetPastEnd, or LogDamaged, which says where readable
        history resumes.
        """

    def find_time(self, timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        """Call `then` with the first offset taken at or after a time, or with `end`.

        OffsetPastEnd and TierUnavailable say that the log does not answer at the moment.
        """

    def find_last(
        self, then: Callable[[LastFound | LogError], None], known: LastFound | None = None
    ) -> None:
        """Call `then` with the offset of the last message of each topic.

        With `known`, the result of an earlier call, only messages from its end on are searched.
        """


class Follower(Port):
    """Receives what other processes write to the same log, in the event loop's thread."""

    def partition_found(self, number: int, reader: LogReader, next_offset: int) -> None:
        """Take note of a partition; its messages from `next_offset` on will be delivered."""

    def messages_read(self, number: int, stored: Stored) -> None:
        """Deliver messages of a partition; they come in order, whole row groups at a time."""

    def pattern_found(self, pattern: str) -> None:
        """Take note of a pattern of which `wants` will be called."""

    def wants(self, pattern: str) -> bool:
        """Return whether a subscriber may need messages of topics that match a pattern.

        If not, `messages_passed_over` may be called for them in place of `messages_read`. Any
        thread may call.
        """

    def messages_passed_over(
        self, number: int, first: int, end: int, patterns: Collection[str]
    ) -> None:
        """Take note that the messages of a partition from `first` up to `end` were not read.

        Their topics match `patterns`. Calls come in the order of offsets, also with those of
        `messages_read`. If a subscriber needs the messages after all, it reads them from the log.
        """

    def messages_failed(self, number: int, end: int) -> None:
        """Take note that messages of a partition up to `end` could not be handed over.

        Subscribers read from the log the messages that were not delivered.
        """

    def records_read(self, records: Sequence[Record]) -> None:
        """Deliver private messages for clients of this process."""

    def topic_created(self, topic: KnownTopic) -> None:
        """Add a topic that another process has created; it may be known."""

    def session_changed(self, key: str, session: KeptSession) -> None:
        """Take the state of a client that may resume, which another process has written."""

    @property
    def service_changed(self) -> Callable[[KnownService], None]:
        """Takes a path that clients of another process serve, or do not serve any more."""

    def topic_deleted(self, name: str) -> None:
        """Remove a topic that another process has deleted; it may be unknown."""
