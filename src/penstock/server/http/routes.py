"""All that can be asked for: the application and the OpenAPI document are made of this table."""

import enum
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct

import penstock
from penstock.core.access import Principal
from penstock.server.http.answers import (
    About,
    Clients,
    ClientsQuery,
    Document,
    Groups,
    LogAnswer,
    Message,
    NoQuery,
    Published,
    Rates,
    RatesQuery,
    Route,
    Subscriptions,
    SubscriptionsQuery,
    Topics,
    TopicsQuery,
)
from penstock.server.http.log_queries import Measuring, describe_log, list_groups
from penstock.server.http.publishing import publish
from penstock.server.http.queries import list_clients, list_subscriptions, list_topics
from penstock.server.http.view import ServerView

__all__ = ["Operation", "Who", "operations"]


class Who(enum.Enum):
    """Whom an operation is for."""

    ANYBODY = "anybody, without credentials"
    LET_IN = "whoever the listener lets in"
    BY_RULES = "whoever the listener lets in, within its rules"
    SEES_ALL = "who may subscribe to everything"


class Operation(NamedTuple):
    """Something that can be asked for.

    `run` gets what was asked: a `query`, or the `body` where there is one. Without an `answer` it
    is plain text, which the application makes.
    """

    method: str
    path: str
    name: str
    summary: str
    who: Who
    answer: type[Struct] | None = None
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    run: Callable[[ServerView, Principal, Any], Awaitable[Struct]] | None = None


def operations(document: Callable[[], Document]) -> Sequence[Operation]:
    """Return all operations; `document` brings the OpenAPI document, which is made of them."""

    async def about(view: ServerView, _principal: Principal, _query: NoQuery) -> About:
        return About(
            name="penstock",
            version=penstock.__version__,
            started=datetime.fromtimestamp(view.started_at, UTC),
            ready=view.not_ready() is None,
            routes=[Route(each.method, each.path, each.summary) for each in table],
        )

    async def openapi(_view: ServerView, _principal: Principal, _query: NoQuery) -> Document:
        return document()

    table = (
        Operation("GET", "/healthz", "health", "Whether the process is alive.", Who.ANYBODY),
        Operation(
            "GET", "/readyz", "readiness", "Whether clients are welcome; 503 if not.", Who.ANYBODY
        ),
        Operation("GET", "/metrics", "metrics", "Metrics for Prometheus.", Who.LET_IN),
        Operation("GET", "/api/", "about", "What can be asked for.", Who.LET_IN, About, run=about),
        Operation(
            "GET",
            "/api/openapi.json",
            "document",
            "This document.",
            Who.LET_IN,
            Document,
            run=openapi,
        ),
        Operation(
            "GET",
            "/api/topics",
            "listTopics",
            "Topics, with what came for them.",
            Who.BY_RULES,
            Topics,
            TopicsQuery,
            run=list_topics,
        ),
        Operation(
            "GET",
            "/api/clients",
            "listClients",
            "Clients that are connected.",
            Who.SEES_ALL,
            Clients,
            ClientsQuery,
            run=list_clients,
        ),
        Operation(
            "GET",
            "/api/subscriptions",
            "listSubscriptions",
            "What clients have subscribed to.",
            Who.SEES_ALL,
            Subscriptions,
            SubscriptionsQuery,
            run=list_subscriptions,
        ),
        Operation(
            "GET",
            "/api/log",
            "describeLog",
            "The log and its segments.",
            Who.SEES_ALL,
            LogAnswer,
            run=describe_log,
        ),
        Operation(
            "GET",
            "/api/groups",
            "listGroups",
            "Groups of readers, and how far they are behind.",
            Who.SEES_ALL,
            Groups,
            run=list_groups,
        ),
        Operation(
            "GET",
            "/api/rates",
            "measureRates",
            "What happens in the next second.",
            Who.SEES_ALL,
            Rates,
            RatesQuery,
            run=Measuring().rates,
        ),
        Operation(
            "POST",
            "/api/publish",
            "publish",
            "Publish a message; answered when it is on disk.",
            Who.BY_RULES,
            Published,
            body=Message,
            run=publish,
        ),
    )
    return table
