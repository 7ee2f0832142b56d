"""The table of HTTP operations; the application and the OpenAPI document are built from it."""

import enum
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct

import penstock
from penstock.core.access import Principal
from penstock.server.http.acts import disconnect_client, drain
from penstock.server.http.cluster import describe_cluster
from penstock.server.http.console_schemas import (
    ClientQuery,
    Disconnected,
    Draining,
    DrainQuery,
    Levels,
    LevelsQuery,
    Limits,
    Me,
    MeQuery,
    Messages,
    MessagesQuery,
    Refusals,
    Verified,
    VerifyQuery,
)
from penstock.server.http.context import HttpContext
from penstock.server.http.deletion import delete_topic, delete_topics
from penstock.server.http.group_changes import (
    redrive_group,
    remove_group,
    reset_group,
    show_group,
)
from penstock.server.http.hook_times import list_hooks
from penstock.server.http.log_queries import RateMeter, describe_log, list_groups
from penstock.server.http.messages import read_messages, verify_log
from penstock.server.http.publishing import publish
from penstock.server.http.queries import list_clients, list_subscriptions, list_topics
from penstock.server.http.schemas import (
    About,
    Clients,
    ClientsQuery,
    Deleted,
    Document,
    GroupChange,
    GroupDetail,
    GroupQuery,
    GroupResetQuery,
    Groups,
    GroupsQuery,
    LogAnswer,
    Message,
    NoQuery,
    Published,
    Rates,
    RatesQuery,
    Route,
    Services,
    ServicesQuery,
    Subscriptions,
    SubscriptionsQuery,
    TopicNames,
    TopicQuery,
    Topics,
    TopicsQuery,
)
from penstock.server.http.service_queries import list_services
from penstock.server.http.standing import describe_caller, list_limits, list_refusals
from penstock.server.http.topic_levels import list_levels
from penstock.server.http.watching_schemas import Cluster, Hooks

__all__ = ["Access", "Operation", "operations"]


class Access(enum.Enum):
    """Credentials and permissions that an operation needs."""

    PUBLIC = "anybody, without credentials"
    AUTHENTICATED = "every client that the listener accepts"
    BY_RULES = "every client that the listener accepts, within its rules"
    ADMINISTERS = "clients with the right to administer"


class Operation(NamedTuple):
    """One operation of the API.

    `run` gets the decoded `query`, or the `body` where there is one. An operation without an
    `answer` returns plain text, which the application makes.
    """

    method: str
    path: str
    name: str
    summary: str
    access: Access
    answer: type[Struct] | None = None
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    run: Callable[[HttpContext, Principal, Any], Awaitable[Struct]] | None = None


def operations(document: Callable[[], Document]) -> Sequence[Operation]:
    """Return all operations; `document` returns the OpenAPI document, which is built from them."""

    async def about(context: HttpContext, _principal: Principal, _query: NoQuery) -> About:
        return About(
            name="penstock",
            version=penstock.__version__,
            started=datetime.fromtimestamp(context.started_at, UTC),
            ready=context.not_ready() is None,
            routes=[Route(each.method, each.path, each.summary) for each in table],
        )

    async def openapi(_view: HttpContext, _principal: Principal, _query: NoQuery) -> Document:
        return document()

    table = (
        Operation("GET", "/healthz", "health", "Whether the process is alive.", Access.PUBLIC),
        Operation(
            "GET",
            "/readyz",
            "readiness",
            "Whether the broker is ready for clients; 503 if not.",
            Access.PUBLIC,
        ),
        Operation("GET", "/metrics", "metrics", "Metrics for Prometheus.", Access.AUTHENTICATED),
        Operation(
            "GET",
            "/api/",
            "about",
            "The operations of this API.",
            Access.AUTHENTICATED,
            About,
            run=about,
        ),
        Operation(
            "GET",
            "/api/openapi.json",
            "document",
            "This document.",
            Access.AUTHENTICATED,
            Document,
            run=openapi,
        ),
        Operation(
            "GET",
            "/api/topics",
            "listTopics",
            "Topics, with their traffic.",
            Access.BY_RULES,
            Topics,
            TopicsQuery,
            run=list_topics,
        ),
        Operation(
            "GET",
            "/api/clients",
            "listClients",
            "Clients that are connected.",
            Access.ADMINISTERS,
            Clients,
            ClientsQuery,
            run=list_clients,
        ),
        Operation(
            "GET",
            "/api/subscriptions",
            "listSubscriptions",
            "Subscriptions of clients.",
            Access.ADMINISTERS,
            Subscriptions,
            SubscriptionsQuery,
            run=list_subscriptions,
        ),
        Operation(
            "GET",
            "/api/services",
            "listServices",
            "Services by name, and how many clients serve them.",
            Access.BY_RULES,
            Services,
            ServicesQuery,
            run=list_services,
        ),
        Operation(
            "GET",
            "/api/log",
            "describeLog",
            "The log and its segments.",
            Access.ADMINISTERS,
            LogAnswer,
            run=describe_log,
        ),
        Operation(
            "GET",
            "/api/groups",
            "listGroups",
            "Consumer groups and their lag.",
            Access.BY_RULES,
            Groups,
            GroupsQuery,
            run=list_groups,
        ),
        Operation(
            "GET",
            "/api/groups/{name}",
            "showGroup",
            "A consumer group, its lag and its members.",
            Access.BY_RULES,
            GroupDetail,
            GroupQuery,
            run=show_group,
        ),
        Operation(
            "POST",
            "/api/groups/{name}/reset",
            "resetGroup",
            "Let a consumer group go on at another place; answered when it is on disk.",
            Access.ADMINISTERS,
            GroupChange,
            GroupResetQuery,
            run=reset_group,
        ),
        Operation(
            "POST",
            "/api/groups/{name}/redrive",
            "redriveGroup",
            "Deliver the dead letters of a consumer group again.",
            Access.ADMINISTERS,
            GroupChange,
            GroupQuery,
            run=redrive_group,
        ),
        Operation(
            "DELETE",
            "/api/groups/{name}",
            "removeGroup",
            "Remove a consumer group.",
            Access.ADMINISTERS,
            GroupChange,
            GroupQuery,
            run=remove_group,
        ),
        Operation(
            "GET",
            "/api/rates",
            "measureRates",
            "Rates, measured in the next second.",
            Access.ADMINISTERS,
            Rates,
            RatesQuery,
            run=RateMeter().rates,
        ),
        Operation(
            "POST",
            "/api/publish",
            "publish",
            "Publish a message; answered when it is on disk.",
            Access.BY_RULES,
            Published,
            body=Message,
            run=publish,
        ),
        Operation(
            "DELETE",
            "/api/topics/{name}",
            "deleteTopic",
            "Delete a topic; answered when it is on disk.",
            Access.ADMINISTERS,
            Deleted,
            TopicQuery,
            run=delete_topic,
        ),
        Operation(
            "POST",
            "/api/delete-topics",
            "deleteTopics",
            "Delete topics, those that exist; answered when it is on disk.",
            Access.ADMINISTERS,
            Deleted,
            body=TopicNames,
            run=delete_topics,
        ),
        Operation(
            "GET",
            "/api/me",
            "describeCaller",
            "The caller and its rights.",
            Access.AUTHENTICATED,
            Me,
            MeQuery,
            run=describe_caller,
        ),
        Operation(
            "GET",
            "/api/messages",
            "readMessages",
            "Stored messages of a topic or pattern.",
            Access.BY_RULES,
            Messages,
            MessagesQuery,
            run=read_messages,
        ),
        Operation(
            "GET",
            "/api/topic-levels",
            "listTopicLevels",
            "Levels of topic names below a prefix.",
            Access.BY_RULES,
            Levels,
            LevelsQuery,
            run=list_levels,
        ),
        Operation(
            "GET",
            "/api/refusals",
            "listRefusals",
            "The last refused acts and log-ins.",
            Access.ADMINISTERS,
            Refusals,
            run=list_refusals,
        ),
        Operation(
            "GET",
            "/api/limits",
            "listLimits",
            "How much of each limit is used.",
            Access.ADMINISTERS,
            Limits,
            run=list_limits,
        ),
        Operation(
            "GET",
            "/api/cluster",
            "describeCluster",
            "The nodes of a log on Kafka, and how far each follows the others.",
            Access.ADMINISTERS,
            Cluster,
            run=describe_cluster,
        ),
        Operation(
            "GET",
            "/api/hooks",
            "listHooks",
            "Hooks and requests, and how long their answers take.",
            Access.ADMINISTERS,
            Hooks,
            run=list_hooks,
        ),
        Operation(
            "GET",
            "/api/log/verify",
            "verifyLog",
            "Compare a part of the log with its checksums.",
            Access.ADMINISTERS,
            Verified,
            VerifyQuery,
            run=verify_log,
        ),
        Operation(
            "DELETE",
            "/api/clients/{connection}",
            "disconnectClient",
            "Disconnect a client.",
            Access.ADMINISTERS,
            Disconnected,
            ClientQuery,
            run=disconnect_client,
        ),
        Operation(
            "POST",
            "/api/drain",
            "drain",
            "Take no new clients, disconnect the others, and exit.",
            Access.ADMINISTERS,
            Draining,
            DrainQuery,
            run=drain,
        ),
    )
    return table
