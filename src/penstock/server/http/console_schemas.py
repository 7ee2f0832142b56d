"""Requests and responses of the API for those who look at messages and act on clients and groups.

The console is made of them. Times are in UTC.
"""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.limits import (
    HTTP_DRAIN_SECONDS_MAX,
    HTTP_MESSAGE_VALUE_BYTES,
    HTTP_MESSAGE_VALUE_BYTES_MAX,
    HTTP_MESSAGES,
    HTTP_MESSAGES_MAX,
    HTTP_PAGE_ENTRIES,
    HTTP_PAGE_ENTRIES_MAX,
    HTTP_WAIT_SECONDS_MAX,
)
from penstock.server.http.schemas import Count

__all__ = [
    "ClientQuery",
    "Damage",
    "Disconnected",
    "DrainQuery",
    "Draining",
    "FailedConnections",
    "Header",
    "Level",
    "Levels",
    "LevelsQuery",
    "LimitUse",
    "Limits",
    "Me",
    "MeQuery",
    "Messages",
    "MessagesQuery",
    "QuotaUse",
    "Refusal",
    "Refusals",
    "StoredMessage",
    "Verified",
    "VerifyQuery",
]


class _Query(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a request."""


# --- The caller -----------------------------------------------------------------------------------


class MeQuery(_Query, frozen=True):
    """A topic whose rights to return as well."""

    topic: str | None = None


class Me(Struct, frozen=True):
    """The caller. `administers` are the areas that it has the right to administer.

    `publish` and `subscribe` say whether it may do so with the topic of the query; without one,
    with all topics. `groups` says which consumer groups it may use: `all`, `some` or `none`. `log`
    is the kind of the broker's log: `arrow`, `kafka` or `memory`.
    """

    name: str
    anonymous: bool
    administers: list[str]
    publish: bool
    subscribe: bool
    groups: Literal["all", "some", "none"]
    log: str


# --- Messages -------------------------------------------------------------------------------------


class MessagesQuery(_Query, frozen=True):
    """Stored messages of a topic or pattern.

    With `start`, an offset, or `time`: from there on; if there are none, wait up to `wait` seconds
    for one; with `newest` the last of them rather than the first. Otherwise the last ones, or with
    `before` the last ones before this offset. Values are cut behind `value_bytes`.
    """

    topic: Annotated[str, Meta(min_length=1)] = "#"
    start: Count | None = None
    time: datetime | None = None
    before: Count | None = None
    newest: bool = False
    limit: Annotated[int, Meta(ge=1, le=HTTP_MESSAGES_MAX)] = HTTP_MESSAGES
    value_bytes: Annotated[int, Meta(ge=0, le=HTTP_MESSAGE_VALUE_BYTES_MAX)] = (
        HTTP_MESSAGE_VALUE_BYTES
    )
    wait: Annotated[float, Meta(ge=0, le=HTTP_WAIT_SECONDS_MAX)] = 0.0


class Header(Struct, frozen=True):
    """A header of a message; the value is base64."""

    name: str
    value: bytes


class StoredMessage(Struct, frozen=True):
    """A message of the log; `key` and `value` are base64, `bytes` is the size of its value."""

    offset: Count
    message_id: str
    time: datetime
    topic: str | None
    protocol: str
    kind: str
    sender: str | None
    key: bytes | None
    headers: list[Header]
    value: bytes
    bytes: Count
    correlation: str | None
    status: int | None


class Messages(Struct, frozen=True):
    """Messages by offset, the lowest first.

    `next` is `start` of the next request, `previous` is `before` of the one for older messages, and
    null if there are none. An answer may have fewer messages than asked for, or none, with `next`
    or `previous` to search on. `horizon` and `end` are the bounds of the log; without a log, `kept`
    is false. `problem` says which messages of the range could not be read.
    """

    messages: list[StoredMessage]
    kept: bool
    horizon: Count
    end: Count
    next: Count
    previous: Count | None
    problem: str | None


# --- Topics by level ------------------------------------------------------------------------------


class LevelsQuery(_Query, frozen=True):
    """The level below `prefix`, which is empty or ends in `/`: a page from `after` on."""

    prefix: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=HTTP_PAGE_ENTRIES_MAX)] = HTTP_PAGE_ENTRIES


class Level(Struct, frozen=True):
    """One level of topic names: how many topics begin with it, and their messages.

    `is_topic` says whether the name is a topic itself.
    """

    name: str
    topics: Count
    messages: Count
    is_topic: bool


class Levels(Struct, frozen=True):
    """A page of levels by name; `next` is the value of `after` for the next page."""

    levels: list[Level]
    total: Count
    next: str | None


# --- Acts -----------------------------------------------------------------------------------------


class ClientQuery(_Query, frozen=True):
    """The connection of a client."""

    connection: Count


class Disconnected(Struct, frozen=True):
    """A client that was disconnected."""

    connection: int
    name: str
    principal: str


class DrainQuery(_Query, frozen=True):
    """How long the drain may take, instead of `limits.stop_seconds_max`."""

    seconds: Annotated[float, Meta(gt=0, le=HTTP_DRAIN_SECONDS_MAX)] | None = None


class Draining(Struct, frozen=True):
    """A drain that has begun: the clients at its start, and how long it may take."""

    clients: Count
    seconds_max: float


# --- Refusals and limits --------------------------------------------------------------------------


class Refusal(Struct, frozen=True):
    """A refused act or log-in, and how often it happened since `time`.

    `action` is `log-in` or the right that was missing, `name` the topic or area, or the reason.
    `client` is the name of the client that was refused last, empty if it has none. `rule` is the
    rule that denies the act, such as `deny publish on plant/#`, empty if no rule allows it.
    """

    time: datetime
    last: datetime
    count: Count
    principal: str
    address: str
    protocol: str
    action: str
    name: str
    client: str = ""
    rule: str = ""


class FailedConnections(Struct, frozen=True):
    """How many connections ended before their handshake, or by a fault, for a reason."""

    reason: str
    count: Count


class Refusals(Struct, frozen=True):
    """The last refusals since the start, the newest first, and the connections that failed."""

    refusals: list[Refusal]
    connections_failed: list[FailedConnections]


class LimitUse(Struct, frozen=True):
    """How much of a limit is in use; `setting` is its name in the configuration.

    `lowered_by` is `open files` if the process may open too few for the limit that is set.
    """

    name: str
    setting: str
    used: Count
    maximum: Count
    lowered_by: str = ""


class QuotaUse(Struct, frozen=True):
    """The quota of a principal; 0 is no limit.

    `stored_bytes` are those of its messages in the log. `topics` are those that it created; topics
    of clients without credentials are counted by address, and not here. `reached` says how often
    its clients were at the limit of `connections`, `messages`, `bytes`, `stored_bytes` or
    `topics`.
    """

    principal: str
    connections: Count
    connections_max: Count
    messages_per_second_max: Count
    bytes_per_second_max: Count
    stored_bytes: Count
    stored_bytes_max: Count
    topics: Count
    topics_max: Count
    reached: dict[str, Count]


class Limits(Struct, frozen=True):
    """The limits of the broker, the one nearest to its maximum first.

    `quotas` are those of principals that have one.
    """

    limits: list[LimitUse]
    quotas: list[QuotaUse]


# --- Verification ---------------------------------------------------------------------------------


class VerifyQuery(_Query, frozen=True):
    """The offset to start at; without one, the first that is kept."""

    start: Count | None = None


class Damage(Struct, frozen=True):
    """Offsets from `first` up to `resumes` that cannot be read."""

    first: Count
    resumes: Count
    reason: str


class Verified(Struct, frozen=True):
    """A part of the log that was read and compared with its checksums.

    `next` is `start` of the next request, null at the end of the log.
    """

    start: Count
    end: Count
    messages: Count
    bytes: Count
    damage: list[Damage]
    next: Count | None
