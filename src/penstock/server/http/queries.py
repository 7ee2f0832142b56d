"""API handlers for topics, clients and subscriptions."""

import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from penstock.core.access import Action, Principal, authorize, is_allowed
from penstock.core.sessions import Session
from penstock.protocols import PROTOCOLS
from penstock.server.http.client_counts import (
    ListGate,
    client_of,
    in_slices,
    is_slow,
    label_of,
    utc_time,
)
from penstock.server.http.context import HttpContext
from penstock.server.http.errors import ApiError
from penstock.server.http.messages import read_last_values
from penstock.server.http.schemas import (
    Clients,
    ClientsQuery,
    Subscription,
    Subscriptions,
    SubscriptionsQuery,
    Topic,
    Topics,
    TopicsQuery,
)

__all__ = ["list_clients", "list_subscriptions", "list_topics"]

_CHANNELS = range(256)


Query = TypeVar("Query")
Answer = TypeVar("Answer")
Handler: TypeAlias = Callable[[HttpContext, Principal, Query], Coroutine[Any, Any, Answer]]


def _limited(handler: Handler[Query, Answer]) -> Handler[Query, Answer]:
    """Let only a few requests read lists at the same time."""

    @functools.wraps(handler)
    async def run(context: HttpContext, principal: Principal, query: Query) -> Answer:
        async with context.broker.shared(ListGate).places:
            return await handler(context, principal, query)

    return run


@_limited
async def list_topics(context: HttpContext, principal: Principal, query: TopicsQuery) -> Topics:
    """Return topics that a principal may read; herald channels only if they are in use."""
    broker = context.broker
    names, router = broker.topics, broker.router
    router.learn_topics()
    channels = {names.channel_topic(channel) for channel in _CHANNELS}
    known = len(router.route_of_topic)
    subscribers: dict[int, int] = {}  # by route: many topics share one
    found: list[Topic] = []
    following = None
    async for identifier in in_slices(range(min(query.after, known), known)):
        if not names.is_live(identifier):
            continue
        name = names.name(identifier)
        if query.contains not in name or not name.startswith(query.prefix):
            continue
        if not is_allowed(principal, Action.SUBSCRIBE, name):
            continue
        route = router.route_of_topic[identifier]
        if route not in subscribers:
            subscribers[route] = router.subscriber_count(identifier)
        count = broker.topic_counts.of(identifier)
        if identifier in channels and not count.messages and not subscribers[route]:
            continue
        if len(found) == query.limit:
            following = identifier
            break
        found.append(
            Topic(
                name=name,
                messages=count.messages,
                bytes=count.value_bytes,
                last_offset=count.last_offset if count.messages else None,
                last_time=utc_time(count.last_us) if count.messages else None,
                subscribers=subscribers[route],
                parent=_uuid(names.parent(identifier)),
            )
        )
    if query.value_bytes:
        found = await _with_values(context, principal, found, query.value_bytes)
    return Topics(found, names.live, following)


async def _with_values(
    context: HttpContext, principal: Principal, topics: list[Topic], value_bytes: int
) -> list[Topic]:
    """Return topics with their last values, which one read of the log finds."""
    last = {each.name: each.last_offset for each in topics if each.last_offset is not None}
    values = await read_last_values(context, principal, last, value_bytes=value_bytes)
    return [msgspec.structs.replace(each, value=values.get(each.name)) for each in topics]


def _uuid(identity: bytes) -> str | None:
    return str(UUID(bytes=identity)) if identity else None


@_limited
async def list_clients(context: HttpContext, principal: Principal, query: ClientsQuery) -> Clients:
    """Return clients, the lowest number first; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, "clients")
    wanted = None if query.protocol is None else PROTOCOLS[query.protocol]
    sessions = _sessions(context, query.after)
    found: list[Session] = []
    following = None
    async for session in in_slices(sessions):
        if wanted not in {None, session.encoding.protocol} or (query.slow and not is_slow(session)):
            continue
        if len(found) == query.limit:
            following = session.number
            break
        found.append(session)
    clients = [client_of(context.broker, session) for session in found]
    return Clients(clients, len(context.broker.sessions), following)


@_limited
async def list_subscriptions(
    context: HttpContext, principal: Principal, query: SubscriptionsQuery
) -> Subscriptions:
    """Return subscriptions, client by client; raise NotAllowed or ApiError."""
    authorize(principal, Action.ADMINISTER, "subscriptions")
    after, skipped = _place(query.after)
    found: list[Subscription] = []
    async for session in in_slices(_sessions(context, after)):
        if query.connection not in {None, session.link.connection}:
            continue
        first = skipped if session.number == after else 0
        for place, pattern in enumerate(session.subscribed[first:], first):
            if len(found) == query.limit:
                return Subscriptions(found, f"{session.number}-{place}")
            found.append(
                Subscription(
                    pattern=pattern,
                    connection=session.link.connection,
                    id=session.number,
                    protocol=label_of(session),
                    name=session.name,
                )
            )
    return Subscriptions(found, None)


def _sessions(context: HttpContext, after: int) -> list[Session]:
    """Return sessions from a number on, in the order of their numbers."""
    found = [session for session in context.broker.sessions if session.number >= after]
    found.sort(key=lambda session: session.number)
    return found


def _place(text: str) -> tuple[int, int]:
    if not text:
        return 0, 0
    with contextlib.suppress(ValueError):
        number, place = map(int, text.split("-"))
        if number >= 0 and place >= 0:
            return number, place
    message = "after: expected what `next` was in the answer before"
    raise ApiError(400, "bad-request", message)
