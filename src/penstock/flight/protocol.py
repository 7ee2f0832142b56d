"""What is said over Arrow Flight: tickets, actions and descriptors, as JSON; both sides use this.

    DoGet     ticket = ReadRange                    → record batches, columns of RECORD_SCHEMA
    DoPut     descriptor command = Stage            ← rows, columns of SINK_SCHEMA, then Staged
                                                    → Staged
    DoAction  bounds         (nothing)              → {partition: Bounds}
              topics         (nothing)              → [name, …]
              offset-at      OffsetAt               → int
              splits         Splits                 → [OffsetRange, …]
              publish-epoch  PublishEpoch           → Published
              abort-epoch    AbortEpoch             → nothing
              commit-group   CommitGroup            → nothing
              groups         (nothing)              → {group: {partition: GroupOffset}}

A call that fails carries a Failure as its extra information, or where it fails in the middle at
the end of its text; the code of the error stands first there. `authorization: Bearer TOKEN` says
who calls, where that is asked for.
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
"""The columns that a sink takes: by name, in any order; `key` and `headers` may be left out."""


class ActionName(enum.StrEnum):
    """The types of DoAction."""

    BOUNDS = "bounds"
    TOPICS = "topics"
    OFFSET_AT = "offset-at"
    SPLITS = "splits"
    PUBLISH_EPOCH = "publish-epoch"
    ABORT_EPOCH = "abort-epoch"
    COMMIT_GROUP = "commit-group"
    GROUPS = "groups"


class Failure(msgspec.Struct, frozen=True):
    """An error of the broker: its code, and what its class is made of."""

    code: str
    text: str
    fields: list[int | str] = []


# --- Reading ------------------------------------------------------------------------------------


class ReadRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Read the messages from offset `start` up to `end`, in order. None is no restriction.

    A message is given if its topic is among `topics` or fits one of `patterns` (wildcards) or all
    of `expression` (a regular expression), where any of the three is there; if its protocol and
    kind are among `protocols` and `kinds`; and if it was taken at or after `since_us` and before
    `until_us`, in microseconds since the epoch. `columns` are given in this order. With
    `dictionaries`, columns of names and words come as dictionaries, which is less to send.

    OffsetBelowHorizon, OffsetPastEnd or LogDamaged if a part of the range cannot be read; what
    could be was sent before.
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


class Bounds(msgspec.Struct, frozen=True):
    """What can be read of a partition: from `horizon` up to `end`. Only retention takes from it."""

    horizon: int
    end: int


class OffsetAt(msgspec.Struct, frozen=True):
    """Ask for the first offset that was taken at or after a time, or the end."""

    timestamp_us: int
    partition: int = 0


class Splits(msgspec.Struct, frozen=True):
    """Ask for about `count` ranges of about the same number of bytes, cut between groups.

    With `topics`, `patterns` or `expression`, bytes are of groups that have any such topic.
    """

    start: int
    end: int
    count: int
    partition: int = 0
    topics: list[str] | None = None
    patterns: list[str] | None = None
    expression: str | None = None


class OffsetRange(msgspec.Struct, frozen=True):
    """Messages from `start` up to `end`."""

    start: int
    end: int


# --- Groups -------------------------------------------------------------------------------------


class CommitGroup(msgspec.Struct, frozen=True):
    """Remember up to where a group has read: the next offset of each partition.

    `lost` is how many offsets were gone before it could read them, since it last said so.
    """

    group: str
    offsets: dict[int, int]
    lost: int = 0


class GroupOffset(msgspec.Struct, frozen=True):
    """Up to where a group has read a partition, and how many messages are behind that.

    `lost` is of the group, whatever the partition.
    """

    offset: int
    lag: int
    lost: int = 0


# --- The sink -----------------------------------------------------------------------------------


class Stage(msgspec.Struct, frozen=True):
    """Put the rows of one task aside; the same task and `token` replaces them.

    A task is a writer, an epoch and a partition. A writer is up to 128 letters, digits, `.`, `_`
    and `-`; it belongs to the principal that came with it first. A token is up to 64 letters and
    digits: with one of its own, an attempt at a task is in no other's way. `attempt` is for the
    broker's log.

    Behind the last row comes a message with no row and a Staged as its metadata: how many rows
    they are. Rows whose sender went away before it are not kept.
    """

    writer: str
    epoch: int
    partition: int
    attempt: int = 0
    token: str = ""


class Staged(msgspec.Struct, frozen=True):
    """How many rows are put aside, on disk."""

    rows: int


class PublishEpoch(msgspec.Struct, frozen=True):
    """Publish what the tasks of an epoch have put aside, in the order of `partitions`.

    `tokens` has that of each of them, or is empty where tasks had none. Once, however often it is
    asked. An epoch whose publishing has begun is finished with the rows
    that it began with, whatever comes for it later. Epochs only grow: NotStaged if rows are not
    there, EpochOutOfOrder for one below the last. A writer that is `final` will not come again.
    """

    writer: str
    epoch: int
    partitions: list[int]
    final: bool = False
    tokens: list[str] = []


class Published(msgspec.Struct, frozen=True):
    """The rows of an epoch that are on disk now; `again` if they were before."""

    rows: int
    again: bool = False


class AbortEpoch(msgspec.Struct, frozen=True):
    """Remove what the tasks of an epoch have put aside, unless its publishing has begun."""

    writer: str
    epoch: int
