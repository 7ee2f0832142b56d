"""API handlers for topics, clients and subscriptions."""

import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from penstock.core.access import EVERYTHING, Action, Principal, authorize, is_allowed
from penstock.core.sessions import Session
from penstock.limits import HTTP_TOPICS_COUNTED_MAX
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
    listing = _TopicListing(context, principal, query)
    if query.order == "name":
        identifiers, following, count = await listing.by_name()
    else:
        identifiers, following = await listing.by_creation()
        count = None
    # A topic may have been deleted, and its identifier used again, while others were looked at.
    found = [listing.topic(each) for each in identifiers if listing.is_wanted(each)]
    if query.value_bytes:
        found = await _with_values(context, principal, found, query.value_bytes)
    return Topics(found, await listing.total(), following, count)


class _TopicListing:
    """The topics that one request asks for."""

    def __init__(self, context: HttpContext, principal: Principal, query: TopicsQuery) -> None:
        self._broker = context.broker
        self._principal = principal
        self._query = query
        names = self._broker.topics
        bound = (names.channel_topic(channel) for channel in _CHANNELS)
        self._channels = {identifier for identifier in bound if identifier is not None}
        self._subscribers: dict[int, int] = {}  # by route: many topics share one
        self._broker.router.learn_topics()

    async def by_creation(self) -> tuple[list[int], int | None]:
        """Return a page of the identifiers, and the first one of the next page."""
        known = len(self._broker.router.route_of_topic)
        found: list[int] = []
        async for identifier in in_slices(range(min(self._query.after, known), known)):
            if not self.is_wanted(identifier):
                continue
            if len(found) == self._query.limit:
                return found, identifier
            found.append(identifier)
        return found, None

    async def by_name(self) -> tuple[list[int], int | None, int]:
        """Return a page of the identifiers, the place of the next page, and their number."""
        names = self._broker.topics
        known = len(self._broker.router.route_of_topic)
        found = [
            (names.name(identifier), identifier)
            async for identifier in in_slices(range(known))
            if self.is_wanted(identifier)
        ]
        found.sort()
        end = self._query.after + self._query.limit
        page = [identifier for _, identifier in found[self._query.after : end]]
        return page, end if end < len(found) else None, len(found)

    def topic(self, identifier: int) -> Topic:
        """Return a topic as the API shows it."""
        names, count = self._broker.topics, self._broker.topic_counts.of(identifier)
        return Topic(
            name=names.name(identifier),
            messages=count.messages,
            bytes=count.value_bytes,
            last_offset=count.last_offset if count.messages else None,
            last_time=utc_time(count.last_us) if count.messages else None,
            subscribers=self._subscriber_count(identifier),
            parent=_uuid(names.parent(identifier)),
        )

    def is_wanted(self, identifier: int) -> bool:
        """Return whether a topic is one that the request asks for and the caller may read."""
        names, query = self._broker.topics, self._query
        if not names.is_live(identifier):
            return False
        name = names.name(identifier)
        if query.contains not in name or not name.startswith(query.prefix):
            return False
        return self._is_visible(identifier, name)

    async def total(self) -> int | None:
        """Return how many topics the caller may read, None if it would take long to count them."""
        names = self._broker.topics
        if is_allowed(self._principal, Action.SUBSCRIBE, EVERYTHING):
            return names.live - sum(not self._is_used(each) for each in self._channels)
        known = len(self._broker.router.route_of_topic)
        if known > HTTP_TOPICS_COUNTED_MAX:
            return None
        count = 0
        async for identifier in in_slices(range(known)):
            if names.is_live(identifier):
                count += self._is_visible(identifier, names.name(identifier))
        return count

    def _is_visible(self, identifier: int, name: str) -> bool:
        if not is_allowed(self._principal, Action.SUBSCRIBE, name):
            return False
        return identifier not in self._channels or self._is_used(identifier)

    def _is_used(self, identifier: int) -> bool:
        is_used = self._broker.topic_counts.of(identifier).messages
        return bool(is_used or self._subscriber_count(identifier))

    def _subscriber_count(self, identifier: int) -> int:
        router = self._broker.router
        route = router.route_of_topic[identifier]
        if route not in self._subscribers:
            self._subscribers[route] = router.subscriber_count(identifier)
        return self._subscribers[route]


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
    part = query.contains.casefold()
    sessions = _sessions(context, query.after)
    found: list[Session] = []
    following = None
    async for session in in_slices(sessions):
        if wanted not in {None, session.encoding.protocol} or (query.slow and not is_slow(session)):
            continue
        if part and part not in f"{session.name}\n{session.principal.name}".casefold():
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
