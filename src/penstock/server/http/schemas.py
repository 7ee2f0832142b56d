"""Requests and responses of the JSON API; the OpenAPI document is generated from them.

Times are in UTC. Counts are since the broker started, unless the field says otherwise.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from penstock.limits import (
    GROUP_LAG_TOPICS_MAX,
    HTTP_DELETED_TOPICS_MAX,
    HTTP_LAST_VALUE_BYTES_MAX,
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
    "Consumers",
    "Deleted",
    "Document",
    "Failure",
    "Fault",
    "Group",
    "GroupChange",
    "GroupDetail",
    "GroupMember",
    "GroupOffset",
    "GroupQuery",
    "GroupResetQuery",
    "Groups",
    "GroupsQuery",
    "LogAnswer",
    "LogRetention",
    "Message",
    "NoQuery",
    "ProtocolName",
    "ProtocolRate",
    "Published",
    "Rates",
    "RatesQuery",
    "Route",
    "Segment",
    "Service",
    "Services",
    "ServicesQuery",
    "Subscription",
    "Subscriptions",
    "SubscriptionsQuery",
    "Topic",
    "TopicLag",
    "TopicNames",
    "TopicQuery",
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
    """An error: a stable code for programs, and a message that says what to do."""

    code: str
    message: str


class Failure(Struct, frozen=True):
    """The body of every response whose status is not 200."""

    error: Fault


class _Query(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a request."""


class NoQuery(_Query, frozen=True):
    """No query parameters."""


# --- The API --------------------------------------------------------------------------------------


class Route(Struct, frozen=True):
    """An operation of the API."""

    method: str
    path: str
    summary: str


class About(Struct, frozen=True):
    """The broker, and all operations of the API."""

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
    """Topics whose names begin with `prefix` and contain `contains`.

    A page of `limit`, from `after` on. With `value_bytes`, each has the first bytes of its last
    value. `order` is that of their creation, or by name, for which all topics are looked at.
    """

    prefix: str = ""
    contains: str = ""
    after: Count = 0
    limit: _Limit = HTTP_PAGE_ENTRIES
    order: Literal["creation", "name"] = "creation"
    value_bytes: Annotated[int, Meta(ge=0, le=HTTP_LAST_VALUE_BYTES_MAX)] = 0


_Base64 = bytes
"""JSON has bytes in base64."""


class Topic(Struct, frozen=True):
    """A topic. The last offset and time are those of the last message since the start.

    `value` is the last value in base64, as far as it was asked for and found in the log in time.
    `parent` is the id of the Rheos client that created it, null if it was created otherwise.
    """

    name: str
    messages: Count
    bytes: Count
    last_offset: Count | None
    last_time: datetime | None
    subscribers: Count
    parent: str | None
    value: _Base64 | None = None


class TopicQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of one topic."""

    name: str


class TopicNames(Struct, frozen=True, forbid_unknown_fields=True):
    """Names of topics to delete."""

    names: Annotated[list[str], Meta(max_length=HTTP_DELETED_TOPICS_MAX)]


class Deleted(Struct, frozen=True):
    """How many topics were deleted."""

    topics: int


class Topics(Struct, frozen=True):
    """A page of the topics that the caller may read.

    `total` counts all topics that the caller may read, including those that the query leaves out.
    It is null if rules limit the caller, and there are too many topics to apply the rules to each.
    Channels of herald count if they are used. `found` counts the topics that match the query, null
    unless they are ordered by name. `next` is the value of `after` for the next page, null on the
    last one.
    """

    topics: list[Topic]
    total: Count | None
    next: Count | None
    found: Count | None = None


# --- Clients --------------------------------------------------------------------------------------


class ClientsQuery(_Query, frozen=True):
    """Clients, all or of one protocol or only slow ones: a page of `limit`, from `after` on.

    With `contains`, only those whose name or principal contains it, in upper or lower case.
    """

    protocol: ProtocolName | None = None
    slow: bool = False
    contains: str = ""
    after: Count = 0
    limit: _Limit = HTTP_PAGE_ENTRIES


class Client(Struct, frozen=True):
    """A client that is connected.

    `connection` is the number in log events, `id` the client id of fleximq. `waiting_bytes` were
    written and not yet read by the client. A client is `slow` if so much waits that it gets no live
    messages, or if it is served from the log; `behind` is then its distance from the end, in
    offsets.
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
    """A page of the clients, by `id`; `next` is the value of `after` for the next page."""

    clients: list[Client]
    total: Count
    next: Count | None


class ServicesQuery(_Query, frozen=True):
    """Services in the order of their paths: a page of `limit`, from `after` on."""

    after: str = ""
    limit: _Limit = HTTP_PAGE_ENTRIES


class ServiceNode(Struct, frozen=True):
    """How many clients of a node serve a path."""

    node: int
    servers: Count
    subscribers: Count


class Service(Struct, frozen=True):
    """A path and the clients that serve it.

    `servers` have registered it, `subscribers` subscribe to its topic, on all nodes. `pending` are
    the requests that the servers of this node have not answered. `nodes` says where the clients
    are; a broker that is the only one has node 0.
    """

    path: str
    servers: Count
    subscribers: Count
    pending: Count
    nodes: list[ServiceNode]


class Services(Struct, frozen=True):
    """Services; `next` is `after` of the next page, null if there is none."""

    services: list[Service]
    next: str | None


class SubscriptionsQuery(_Query, frozen=True):
    """Subscriptions, all or of one connection: a page of `limit`, from `after` on."""

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
    """A page of the subscriptions; `next` is the value of `after` for the next page."""

    subscriptions: list[Subscription]
    next: str | None


# --- The log --------------------------------------------------------------------------------------


class Segment(Struct, frozen=True):
    """A segment file of the log, with the offsets from `base_offset` up to `end_offset`."""

    base_offset: Count
    end_offset: Count
    bytes: Count
    last_time: datetime | None


class Tier(Struct, frozen=True):
    """The object store of a log. `waiting` segments are closed and not in it yet.

    `overdue_segments` are local ones above the local limits that cannot be deleted, because they
    are not in the store. `problem` says why the last attempt failed, if it did.
    """

    url: str
    segments: Count
    bytes: Count
    waiting_segments: Count
    waiting_bytes: Count
    local_segments: Count
    local_bytes: Count
    overdue_segments: Count
    uploads: Count
    failures: Count
    last_upload: datetime | None
    problem: str | None


class TopicRetention(Struct, frozen=True):
    """A `[[retention]]`; null is no bound.

    Messages of its topics below `horizon` have expired, or all but the last of each topic if
    `last_only` is true. `excess_bytes` are above `bytes_max`: the newest messages always stay.
    `expired_bytes` are those of expired messages that still take space.
    """

    topics: list[str]
    age_seconds_max: float | None
    bytes_max: Count | None
    last_only: bool
    horizon: Count
    excess_bytes: Count
    expired_bytes: Count


class LogRetention(Struct, frozen=True):
    """The bounds of what is kept; null is no bound. On Kafka, they are settings of its topic."""

    age_seconds_max: float | None
    bytes_max: Count | None
    topics: list[TopicRetention]


class LogAnswer(Struct, frozen=True):
    """The log. Without a log, `kept` is false and there are no segments.

    `horizon` is the first offset that can be read, `end` is one past the last, `durable` one past
    the last that is known to be on disk, and `next_offset` the offset of the next message.
    `problem` says why messages are refused, if they are. `tier` is null without an object store.
    """

    kept: bool
    kind: str
    id: str
    partition: int
    retention: LogRetention
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
    tier: Tier | None


class GroupOffset(Struct, frozen=True):
    """The offset of a consumer group in a partition, and its lag."""

    partition: int
    offset: Count
    lag: Count


class GroupsQuery(_Query, frozen=True):
    """How many topics to return for each group."""

    topics: Annotated[int, Meta(ge=0, le=GROUP_LAG_TOPICS_MAX)] = 20


class GroupQuery(_Query, frozen=True):
    """The name of one group, and how many of its topics to return."""

    name: str
    topics: Annotated[int, Meta(ge=0, le=GROUP_LAG_TOPICS_MAX)] = 20


class GroupResetQuery(_Query, frozen=True):
    """The name of one group, and where it goes on: `earliest`, `latest`, an offset or a time."""

    name: str
    to: str


class TopicLag(Struct, frozen=True):
    """The lag of a consumer group in a topic. Messages without a topic have an empty name."""

    topic: str
    lag: Count


Consumers: TypeAlias = Literal["members", "none", "other-node", "external"]
"""The readers of a group: members at this broker, no client, members at another node, or a reader
that keeps its own place and reports it, such as a Spark query."""


class Group(Struct, frozen=True):
    """A consumer group, such as a Spark query. `lost` offsets were gone before it read them.

    `lag` is the number of messages of its topics behind its offsets, or of all if it did not report
    its topics. `topics` are those with the highest lag that the client may subscribe to.
    `members`, `unacknowledged` and `dead` are of a group whose members are clients of the broker:
    messages that they have, and those that can be delivered again from the dead letters. `pattern`
    is the pattern of their subscriptions.
    """

    name: str
    consumers: Consumers
    pattern: str | None
    members: Count
    unacknowledged: Count
    dead: Count
    lag: Count
    lost: Count
    updated: datetime
    offsets: list[GroupOffset]
    topics: list[TopicLag]


class GroupMember(Struct, frozen=True):
    """A client in a group, and the messages that it has not acknowledged."""

    name: str
    connection: int
    protocol: ProtocolName
    unacknowledged: Count


class GroupDetail(Struct, frozen=True):
    """A consumer group as in the list of groups, with its members."""

    name: str
    consumers: Consumers
    pattern: str | None
    unacknowledged: Count
    dead: Count
    lag: Count
    lost: Count
    updated: datetime
    offsets: list[GroupOffset]
    topics: list[TopicLag]
    members: list[GroupMember]


class GroupChange(Struct, frozen=True):
    """A group that was changed: where it goes on, or how many messages are delivered again.

    `gone` is the number of dead letters whose messages are no longer in the log.
    """

    name: str
    offset: Count = 0
    messages: Count = 0
    gone: Count = 0


class Groups(Struct, frozen=True):
    """All consumer groups, by name."""

    groups: list[Group]


# --- Rates ----------------------------------------------------------------------------------------


class RatesQuery(_Query, frozen=True):
    """How long to measure, which the caller waits, and how many topics to return."""

    seconds: Annotated[float, Meta(gt=0, le=HTTP_RATES_SECONDS_MAX)] = 1.0
    topics: Annotated[int, Meta(ge=1, le=HTTP_RATES_TOPICS_MAX)] = 20


class ProtocolRate(Struct, frozen=True):
    """Messages and bytes per second that clients of a protocol sent and received."""

    protocol: SourceName
    clients: Count
    received_messages: float
    received_bytes: float
    sent_messages: float
    sent_bytes: float


class TopicRate(Struct, frozen=True):
    """Messages and bytes of values per second that were published to a topic."""

    name: str
    messages: float
    bytes: float
    subscribers: Count


class Rates(Struct, frozen=True):
    """Rates over the last `seconds`; `syncs` and `sync_seconds` are of that time."""

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
    """A published message. `durable` is false if the broker has no log.

    `duplicate` is true if it was not stored: the key is that of an earlier message, named here.
    """

    topic: str
    partition: int
    offset: Count
    message_id: str
    durable: bool
    duplicate: bool = False
