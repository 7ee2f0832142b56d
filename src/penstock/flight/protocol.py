"""Tickets, actions and descriptors of the Flight service, as JSON; broker and client use them.

    DoGet     ticket = ReadRange                    → record batches, columns of RECORD_SCHEMA
    DoPut     descriptor command = Stage            ← rows, columns of SINK_SCHEMA, then Staged
                                                    → Staged
    DoAction  bounds         (nothing)              → {partition: Bounds}
              topics         (nothing)              → [name, …]
              offset-at      OffsetAt               → int
              splits         Splits                 → [OffsetRange, …]
              match          Match                  → Matched
              publish-epoch  PublishEpoch           → Published
              abort-epoch    AbortEpoch             → nothing
              commit-group   CommitGroup            → nothing
              groups         (nothing)              → {group: {partition: GroupOffset}}

A failed call has a Failure as its extra information, or, if it fails while batches are sent, at the
end of its text; the text starts with the code of the error. A header `authorization: Bearer TOKEN`
authenticates the caller.
"""

import enum
from typing import Final

import msgspec
import pyarrow as pa

from penstock.storage.schema import SCHEMA

__all__ = [
    "SINK_SCHEMA",
    "AbortEpoch",
    "ActionName",
    "Bounds",
    "CommitGroup",
    "Failure",
    "GroupOffset",
    "Match",
    "Matched",
    "OffsetAt",
    "OffsetRange",
    "PublishEpoch",
    "Published",
    "ReadRange",
    "Splits",
    "Stage",
    "Staged",
]

SINK_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.utf8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("headers", SCHEMA.field("headers").type),
    ]
)
"""Columns of a sink, in any order; `key` and `headers` are optional."""


class ActionName(enum.StrEnum):
    """The types of DoAction."""

    BOUNDS = "bounds"
    TOPICS = "topics"
    OFFSET_AT = "offset-at"
    SPLITS = "splits"
    MATCH = "match"
    PUBLISH_EPOCH = "publish-epoch"
    ABORT_EPOCH = "abort-epoch"
    COMMIT_GROUP = "commit-group"
    GROUPS = "groups"


class Failure(msgspec.Struct, frozen=True):
    """An error of the broker: its code, its text, and the fields of its class."""

    code: str
    text: str
    fields: list[int | str] = []


# --- Reading ------------------------------------------------------------------------------------


class ReadRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Read the messages from offset `start` up to `end`, in order. None is no restriction.

    If any of `topics`, `patterns` (wildcards) and `expression` (a regular expression) is given, the
    topic of a message must be among `topics`, or match one of `patterns` or the whole `expression`.
    Its protocol and kind must be among `protocols` and `kinds`, and its time at or after `since_us`
    and before `until_us`, in microseconds since the epoch. The answer has `columns` in this order.
    With `dictionaries`, columns of names are sent as dictionaries, which are smaller.

    `log` is the id of the log that the offsets belong to, from `bounds`; LogReplaced if this is
    another log.

    OffsetBelowHorizon, OffsetPastEnd or LogDamaged if a part of the range cannot be read, after the
    messages before it were sent.
    """

    start: int
    end: int
    partition: int = 0
    topics: list[str] | None = None
    patterns: list[str] | None = None
    expression: str | None = None
    kinds: list[str] | None = None
    protocols: list[str] | None = None
    since_us: int | None = None
    until_us: int | None = None
    columns: list[str] | None = None
    dictionaries: bool = False
    log: str = ""


class Bounds(msgspec.Struct, frozen=True):
    """The readable offsets of a partition: from `horizon`, which retention moves, up to `end`.

    `log` is the id of the log; it is empty in the answer of an older broker.
    """

    horizon: int
    end: int
    log: str = ""


class OffsetAt(msgspec.Struct, frozen=True):
    """Find the first offset taken at or after a time, or the end."""

    timestamp_us: int
    partition: int = 0


class Splits(msgspec.Struct, frozen=True):
    """Divide a range into about `count` parts of about the same size that meet between row groups.

    With `topics`, `patterns` or `expression`, only row groups with such a topic count.
    """

    start: int
    end: int
    count: int
    partition: int = 0
    topics: list[str] | None = None
    patterns: list[str] | None = None
    expression: str | None = None


class Match(msgspec.Struct, frozen=True, omit_defaults=True):
    """Count the messages of a range with such topics, and find their end.

    With `rows_max`, so many of them at most. `log` is as in ReadRange.
    """

    start: int
    end: int
    partition: int = 0
    topics: list[str] | None = None
    patterns: list[str] | None = None
    expression: str | None = None
    rows_max: int | None = None
    log: str = ""


class Matched(msgspec.Struct, frozen=True):
    """The number of messages, all before the offset `end`; none of the range is behind it.

    `end` is the start of the range if there are none. Damaged messages are counted. None of the
    range is before the offset `first`.
    """

    end: int
    rows: int
    first: int = 0


class OffsetRange(msgspec.Struct, frozen=True):
    """Messages from `start` up to `end`."""

    start: int
    end: int


# --- Consumer groups ----------------------------------------------------------------------------


class CommitGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Store the offsets of a consumer group: the next offset of each partition.

    `lost` offsets since the last report were gone before the group could read them. With `topics`,
    `patterns` or `expression`, the group's lag counts only messages of such topics.
    """

    group: str
    offsets: dict[int, int]
    lost: int = 0
    topics: list[str] | None = None
    patterns: list[str] | None = None
    expression: str | None = None


class GroupOffset(msgspec.Struct, frozen=True):
    """The offset of a consumer group in a partition, and its lag: messages of the group's topics.

    `lost` is of the whole group, not of the partition.
    """

    offset: int
    lag: int
    lost: int = 0


# --- The sink -----------------------------------------------------------------------------------


class Stage(msgspec.Struct, frozen=True):
    """Stage the rows of one task; the same task and `token` replaces them.

    A task is a writer, an epoch and a partition. A writer is up to 128 letters, digits, `.`, `_`
    and `-`; it belongs to the principal that used it first. A token is up to 64 letters and digits;
    attempts at a task with different tokens do not affect each other. `attempt` is for the broker's
    log events.

    The last row is followed by a message without rows that has a Staged as its metadata: the number
    of rows. Without it the rows are not kept.
    """

    writer: str
    epoch: int
    partition: int
    attempt: int = 0
    token: str = ""


class Staged(msgspec.Struct, frozen=True):
    """The number of rows that are staged, on disk."""

    rows: int


class PublishEpoch(msgspec.Struct, frozen=True):
    """Publish the staged rows of an epoch exactly once, in the order of `partitions`.

    `tokens` has the token of each task, or is empty if tasks had none. Once begun, an epoch is
    published with the rows that it had then; rows staged later are ignored. NotStaged if a task has
    no rows, EpochOutOfOrder for an epoch below the last one. After `final` the writer publishes
    nothing more.
    """

    writer: str
    epoch: int
    partitions: list[int]
    final: bool = False
    tokens: list[str] = []


class Published(msgspec.Struct, frozen=True):
    """The number of rows of an epoch, all on disk; `again` if it was published before."""

    rows: int
    again: bool = False


class AbortEpoch(msgspec.Struct, frozen=True):
    """Remove the staged rows of an epoch, unless its publication has begun."""

    writer: str
    epoch: int
