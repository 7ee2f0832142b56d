"""The shapes of the JSON API, asked and answered; the OpenAPI document is made of them.

A time is in UTC. A count is since the broker started unless it says otherwise.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.limits import (
    HTTP_PAGE_ENTRIES,
    HTTP_PAGE_ENTRIES_MAX,
    HTTP_RATES_SECONDS_MAX,
    HTTP_RATES_TOPICS_MAX,
    MESSAGE_HEADERS_MAX,
)
from penstock.protocols import PROTOCOLS, SOURCES

__all__ = [
    "About",
    "Client",
    "Clients",
    "ClientsQuery",
    "Document",
    "Failure",
    "Fault",
    "Group",
    "GroupOffset",
    "Groups",
    "LogAnswer",
    "Message",
    "NoQuery",
    "ProtocolName",
    "ProtocolRate",
    "Published",
    "Rates",
    "RatesQuery",
    "Route",
    "Segment",
    "Subscription",
    "Subscriptions",
    "SubscriptionsQuery",
    "Topic",
    "TopicRate",
    "Topics",
    "TopicsQuery",
]

if TYPE_CHECKING:
    ProtocolName = str
    SourceName = str
else:
    ProtocolName = Literal[PROTOCOLS.labels]
    SourceName = Literal[tuple(SOURCES)]
Count = Annotated[int, Meta(ge=0)]
_Limit = Annotated[int, Meta(ge=1, le=HTTP_PAGE_ENTRIES_MAX)]


class Fault(Struct, frozen=True):
    """What is wrong: a stable code for programs, and a line for people that says what to do."""

    code: str
    message: str


class Failure(Struct, frozen=True):
    """The body of every answer whose status is not 200."""

    error: Fault


class _Query(Struct, frozen=True, forbid_unknown_fields=True):
    """What may stand behind the `?` of a request."""


class NoQuery(_Query, frozen=True):
    """Nothing."""


# --- What there is --------------------------------------------------------------------------------


class Route(Struct, frozen=True):
    """Something that can be asked for."""

    method: str
    path: str
    summary: str


class About(Struct, frozen=True):
    """The broker, and all that can be asked for."""

    name: str
    version: str
    started: datetime
    ready: bool
    routes: list[Route]


class Document(Struct, frozen=True):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, str]
    paths: dict[str, Any]
    components: dict[str, Any]
    security: list[dict[str, list[str]]]


# --- Topics ---------------------------------------------------------------------------------------


class TopicsQuery(_Query, frozen=True):
    """Which topics: those whose names begin with `prefix`, `limit` of them, from `after` on."""

    prefix: str = ""
    after: Count = 0
    limit: _Limit = HTTP_PAGE_ENTRIES


class Topic(Struct, frozen=True):
    """A topic. The last offset and time are those of the last message since the start."""

    name: str
    messages: Count
    bytes: Count
    last_offset: Count | None
    last_time: datetime | None
    subscribers: Count


class Topics(Struct, frozen=True):
    """A page of the topics that the caller may read, in the order in which they came up.

    `total` counts all topics of the broker. `next` is what `after` is on the next page, null on the
    last one.
    """

    topics: list[Topic]
    total: Count
    next: Count | None


# --- Clients --------------------------------------------------------------------------------------


class ClientsQuery(_Query, frozen=True):
    """Which clients: of a protocol, only slow ones, `limit` of them, from `after` on."""

    protocol: ProtocolName | None = None
    slow: bool = False
    after: Count = 0
    limit: _Limit = HTTP_PAGE_ENTRIES


class Client(Struct, frozen=True):
    """A client that is connected.

    `connection` is the number that log events have, `id` the one that fleximq clients know.
    `waiting_bytes` are written and not read by the client yet. A client is `slow` if so much waits
    that it gets no more, or if it is served from the log; `behind` is then how many offsets lie
    between it and the end.
    """

    connection: int
    id: int
    protocol: ProtocolName
    name: str
    principal: str
    address: str
    since: datetime
    subscriptions: Count
    received_messages: Count
    received_bytes: Count
    sent_messages: Count
    sent_bytes: Count
    dropped_messages: Count
    waiting_bytes: Count
    slow: bool
    behind: Count


class Clients(Struct, frozen=True):
    """A page of the clients, by `id`; `next` is what `after` is on the next page."""

    clients: list[Client]
    total: Count
    next: Count | None


class SubscriptionsQuery(_Query, frozen=True):
    """Which subscriptions: of one connection, `limit` of them, from `after` on."""

    connection: Count | None = None
    after: str = ""
    limit: _Limit = HTTP_PAGE_ENTRIES


class Subscription(Struct, frozen=True):
    """A pattern that a client has subscribed to."""

    pattern: str
    connection: int
    id: int
    protocol: ProtocolName
    name: str


class Subscriptions(Struct, frozen=True):
    """A page of the subscriptions; `next` is what `after` is on the next page."""

    subscriptions: list[Subscription]
    next: str | None


# --- The log --------------------------------------------------------------------------------------


class Segment(Struct, frozen=True):
    """A file of the log, with the offsets from `base_offset` up to `end_offset`."""

    base_offset: Count
    end_offset: Count
    bytes: Count
    last_time: datetime | None


class LogAnswer(Struct, frozen=True):
    """The log. Where nothing is kept, `kept` is false and there are no segments.

    `horizon` is the first offset that can be read, `end` is one past the last, `durable` one past
    the last that is known to be on disk, and `next_offset` what the next message gets. `problem`
    says why messages are refused, if they are.
    """

    kept: bool
    id: str
    partition: int
    durability: Literal["fsync", "os", "memory"]
    horizon: Count
    end: Count
    durable: Count
    next_offset: Count
    bytes: Count
    waiting_bytes: Count
    commits: Count
    syncs: Count
    sync_seconds: float
    failures: Count
    problem: str | None
    segment_count: Count
    segments: list[Segment]


class GroupOffset(Struct, frozen=True):
    """Up to where a group has read a partition, and how many offsets it is behind the end."""

    partition: int
    offset: Count
    lag: Count


class Group(Struct, frozen=True):
    """A group of readers, such as a Spark query. `lost` were gone before it could read them."""

    name: str
    lag: Count
    lost: Count
    updated: datetime
    offsets: list[GroupOffset]


class Groups(Struct, frozen=True):
    """All groups, by name."""

    groups: list[Group]


# --- Rates ----------------------------------------------------------------------------------------


class RatesQuery(_Query, frozen=True):
    """How long to measure, which is how long the answer takes, and how many topics to name."""

    seconds: Annotated[float, Meta(gt=0, le=HTTP_RATES_SECONDS_MAX)] = 1.0
    topics: Annotated[int, Meta(ge=1, le=HTTP_RATES_TOPICS_MAX)] = 20


class ProtocolRate(Struct, frozen=True):
    """What a protocol's clients sent and got, in a second."""

    protocol: SourceName
    clients: Count
    received_messages: float
    received_bytes: float
    sent_messages: float
    sent_bytes: float


class TopicRate(Struct, frozen=True):
    """What came for a topic, in a second; bytes are those of values."""

    name: str
    messages: float
    bytes: float
    subscribers: Count


class Rates(Struct, frozen=True):
    """What the broker did in the last `seconds`. `syncs` and `sync_seconds` are of that time."""

    time: datetime
    seconds: float
    clients: Count
    connections: Count
    subscriptions: Count
    topic_count: Count
    waiting_bytes: Count
    slow_count: Count
    protocols: list[ProtocolRate]
    topics: list[TopicRate]
    slow: list[Client]
    groups: list[Group]
    end_offset: Count
    log_waiting_bytes: Count
    syncs: Count
    sync_seconds: float
    problem: str | None


# --- Publishing -----------------------------------------------------------------------------------


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """A message to publish. Its value is one of `text`, `json` (any JSON) and `base64`."""

    topic: Annotated[str, Meta(min_length=1)]
    text: str | msgspec.UnsetType = msgspec.UNSET
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET
    key: str | None = None
    headers: Annotated[dict[str, str], Meta(max_length=MESSAGE_HEADERS_MAX)] = {}


class Published(Struct, frozen=True):
    """A message that was taken. `durable` is false where the broker keeps no log."""

    topic: str
    partition: int
    offset: Count
    message_id: str
    durable: bool
