"""API handlers that read messages of the log: those of a topic, and verification."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from penstock.core.access import Action, Principal, authorize
from penstock.limits import (
    HTTP_READS_MAX,
    HTTP_WAIT_LOOK_SECONDS,
    HTTP_WAITS_MAX,
)
from penstock.memory import Purpose
from penstock.model import Kind
from penstock.patterns import canonical_pattern
from penstock.ports import Bounds
from penstock.server.http.console_schemas import (
    Messages,
    MessagesQuery,
    Verified,
    VerifyQuery,
)
from penstock.server.http.context import HttpContext
from penstock.server.http.errors import ApiError

if TYPE_CHECKING:
    from penstock.ports.selection import Selection
    from penstock.server.http.log_reads import FoundMessages, LogRead

__all__ = ["ReadGate", "read_last_values", "read_messages", "timestamp_us", "verify_log"]


Found = TypeVar("Found")


class ReadGate:
    """Limits how many requests of a broker read the log, or wait for messages, at a time."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(HTTP_READS_MAX)
        self.waiting = 0


async def read_messages(
    context: HttpContext, principal: Principal, query: MessagesQuery
) -> Messages:
    """Return messages of a topic or pattern; raise NotAllowed, InvalidPattern or ApiError."""
    authorize(principal, Action.SUBSCRIBE, query.topic)
    if (query.start, query.time, query.before).count(None) < 2:
        raise ApiError(400, "bad-request", "expected one of start, time and before")
    bounds = _bounds(context, query.topic)
    if not context.storage.keeps_history:
        return _answer(context, None, bounds, bounds.end)
    if query.start is None and query.time is None:
        return await _read_last(context, principal, query, bounds)
    return await _read_on(context, principal, query)


async def _read_last(
    context: HttpContext, principal: Principal, query: MessagesQuery, bounds: Bounds
) -> Messages:
    before = bounds.end if query.before is None else min(query.before, bounds.end)
    before = max(min(before, _last_offset(context, query.topic) + 1), bounds.horizon)
    found = await _run(
        context, principal, query, lambda read: read.backward(bounds.horizon, before)
    )
    return _answer(context, found, bounds, bounds.end)


async def _read_on(context: HttpContext, principal: Principal, query: MessagesQuery) -> Messages:
    start = query.start
    if start is None:
        start = await _offset_at(context, query.time or datetime.now(UTC))
    clock = context.broker.clock
    until = clock.monotonic() + query.wait
    rights = principal.rights
    while True:
        bounds = _bounds(context, query.topic)
        start = max(start, bounds.horizon)
        if start < bounds.end:
            found = await _run(context, principal, query, _reads_on(query, start, bounds.end))
            if found.messages or found.problem or clock.monotonic() >= until:
                following = bounds.end if query.newest else found.end
                return _answer(context, found, bounds, following)
            start = bounds.end if query.newest else found.end
            if start < bounds.end:
                continue
        if clock.monotonic() >= until:
            return _answer(context, None, bounds, start)
        await _pause(context)
        if principal.rights is not rights:
            authorize(principal, Action.SUBSCRIBE, query.topic)
            rights = principal.rights


def _reads_on(query: MessagesQuery, start: int, end: int) -> "Callable[[LogRead], FoundMessages]":
    """Return the read of a range: its last messages if the newest are wanted, else its first."""
    if query.newest:
        return lambda read: read.backward(start, end)
    return lambda read: read.forward(start, end)


async def _pause(context: HttpContext) -> None:
    """Wait until it is time to look for messages again; raise ApiError if too many wait."""
    gate = context.broker.shared(ReadGate)
    if gate.waiting >= HTTP_WAITS_MAX:
        message = f"{HTTP_WAITS_MAX} others wait for messages already; ask again without wait"
        raise ApiError(503, "too-busy", message)
    gate.waiting += 1
    try:
        await asyncio.sleep(HTTP_WAIT_LOOK_SECONDS)
    finally:
        gate.waiting -= 1


async def read_last_values(
    context: HttpContext, principal: Principal, last: Mapping[str, int], *, value_bytes: int
) -> dict[str, bytes]:
    """Return the last value of topics, given the offsets of their last messages, in one read.

    The principal may subscribe to all of them. Topics whose values are not found in time are left
    out.
    """
    bounds = _bounds(context)
    if not last or not context.storage.keeps_history:
        return {}
    query = MessagesQuery(value_bytes=value_bytes)
    return await _run(
        context,
        principal,
        query,
        lambda read: read.last_values(last, horizon=bounds.horizon, end=bounds.end),
    )


async def verify_log(context: HttpContext, principal: Principal, query: VerifyQuery) -> Verified:
    """Read a part of the log and compare it with its checksums; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, "log")
    bounds = _bounds(context)
    start = bounds.horizon if query.start is None else max(query.start, bounds.horizon)
    if not context.storage.keeps_history or start >= bounds.end:
        return Verified(start, max(start, bounds.end), 0, 0, [], None)
    return await _run(
        context, principal, MessagesQuery(), lambda read: read.verify(start, bounds.end)
    )


# --- Parts ----------------------------------------------------------------------------------------


async def _run(
    context: HttpContext,
    principal: Principal,
    query: MessagesQuery,
    work: "Callable[[LogRead], Found]",
) -> Found:
    """Run a read in a thread, with memory of the budget."""

    def run() -> Found:
        # Only a storage that keeps history has Arrow loaded.
        from penstock.server.http.log_reads import LogRead  # noqa: PLC0415

        with context.broker.memory.draw(Purpose.HTTP, principal=principal.name) as draw:
            read = LogRead(
                context.storage,
                _selection(query.topic),
                draw,
                limit=query.limit,
                value_bytes=query.value_bytes,
            )
            return work(read)

    async with context.broker.shared(ReadGate).places:
        return await asyncio.to_thread(run)


def timestamp_us(time: datetime) -> int:
    """Return microseconds since the epoch; a time without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000)


async def _offset_at(context: HttpContext, time: datetime) -> int:
    storage = context.storage
    return await asyncio.to_thread(storage.offset_at, storage.partition, timestamp_us(time))


def _bounds(context: HttpContext, topic: str = "#") -> Bounds:
    """Return the offsets at which messages of a topic, or a pattern, may be."""
    storage = context.storage
    bounds = storage.bounds()[storage.partition]
    return Bounds(min(max(bounds.horizon, storage.horizon_of(topic)), bounds.end), bounds.end)


def _last_offset(context: HttpContext, topic: str) -> int:
    """Return an offset that no message of a topic is behind."""
    broker = context.broker
    end: int = broker.log.next_offset
    if canonical_pattern(topic).levels is not None:
        return end
    identifier = broker.topics.find(topic)
    if identifier is None:
        return end
    count = broker.topic_counts.of(identifier)
    return count.last_offset if count.messages else end


def _selection(topic: str) -> "Selection":
    from penstock.ports.selection import Selection  # noqa: PLC0415  (imports pyarrow: slow)

    if topic in {"#", ">"}:
        return Selection()
    # A request has a path where a publish has a topic; the right to subscribe is for topics.
    kinds = frozenset({Kind.PUBLISH.label})
    if canonical_pattern(topic).levels is None:
        return Selection(topics=frozenset({topic}), kinds=kinds)
    return Selection(patterns=(topic,), kinds=kinds)


def _answer(
    context: HttpContext, found: "FoundMessages | None", bounds: Bounds, following: int
) -> Messages:
    first = bounds.end if found is None else found.start
    return Messages(
        messages=[] if found is None else found.messages,
        kept=context.storage.keeps_history,
        horizon=bounds.horizon,
        end=bounds.end,
        next=following,
        previous=first if first > bounds.horizon else None,
        problem=None if found is None else found.problem,
    )
