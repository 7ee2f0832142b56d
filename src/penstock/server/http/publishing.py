"""Publishing over HTTP: one message, answered when it is on disk.

A message is appended like the rows of a table, which have keys and headers. In the log and for
middleware its protocol is `http`.
"""

import asyncio
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.core.access import Action, Principal, authorize
from penstock.core.broker import Broker
from penstock.core.deduplication import correlation_of, key_digest
from penstock.core.hooks import Event, EventKind
from penstock.core.sessions import topic_owner
from penstock.errors import (
    LogUnavailable,
    PeerError,
    ReservedHeader,
)
from penstock.limits import (
    MESSAGE_HEADERS_BYTES_MAX,
    MESSAGE_HEADERS_MAX,
)
from penstock.model import Durability, is_reserved_header, message_id
from penstock.ports import Prepared, Receipt, Storage
from penstock.protocols import HTTP
from penstock.server.http.context import MESSAGE_KEY, PEER, TRACE_PARENT, HttpContext
from penstock.server.http.errors import ApiError
from penstock.server.http.schemas import Message, Published
from penstock.topic_names import check_topic_name
from penstock.tracing import TRACE_HEADER, parse_traceparent

__all__ = ["publish", "settled"]

CORRELATION: Final = "http"


async def publish(context: HttpContext, principal: Principal, message: Message) -> Published:
    """Publish a message; return when it is on disk, or at once if the storage keeps no history.

    With an `Idempotency-Key` that is known, the answer is that of the first message with it.

    Raise ApiError, ReservedHeader, InvalidMessageKey, InvalidTopicName, NotAllowed, HookRefused,
    HookTimeout, MiddlewareMissing, TopicTableFull or LogUnavailable; then it is not delivered,
    unless the disk failed after delivery.
    """
    broker = context.broker
    value, is_text = _value(message)
    headers = _headers(message)
    if broker.delivery.traces is not None:
        _add_context(headers)
    topic = message.topic
    key = None if message.key is None else _utf8(message.key, "key")
    size = len(_utf8(topic, "topic")) + len(value) + len(key or b"") + _size(headers)
    check_topic_name(topic)
    authorize(principal, Action.PUBLISH, topic)
    if broker.hooks.watch(HTTP, topic):
        event = Event(
            EventKind.PUSH,
            topic,
            principal.name,
            HTTP,
            headers=tuple(headers),
            value=value,
            value_is_text=is_text,
        )
        await _ask(context, event)
    _take_quota(broker, principal, size)
    digest = await _digest(broker, principal, topic)
    first = None if digest is None else broker.deduplication.find(digest, topic)
    if first is not None:
        return await _answer(context, topic, first, is_duplicate=True)
    if not context.client:
        context.client = broker.sessions.next_number()
    rows = await asyncio.to_thread(
        _prepare,
        context.storage,
        {
            "topic": topic,
            "value": value,
            "key": key,
            "headers": [{"key": name, "value": text} for name, text in headers],
        },
        sender=principal.name,
        client=context.client,
        correlation=CORRELATION if digest is None else correlation_of(digest),
    )
    authorize(principal, Action.PUBLISH, topic)  # the rules may have changed meanwhile
    if digest is not None:
        first = broker.deduplication.find(digest, topic)  # another request may have been faster
        if first is not None:
            return await _answer(context, topic, first, is_duplicate=True)
    owner = topic_owner(principal, PEER.get())
    receipt = broker.publish_prepared(rows, owner=owner, quota=principal.quota)
    broker.counters.messages_received_by_http += 1
    if digest is not None:
        broker.deduplication.add(digest, receipt, owner)
    return await _answer(context, topic, receipt, is_duplicate=False)


def _take_quota(broker: Broker, principal: Principal, size: int) -> None:
    """Count a message against the principal's quota.

    Raise TooManyMessages or TooManyStoredBytes above it.
    """
    quota = principal.quota
    if quota.is_limited:
        now = broker.clock.monotonic()
        if quota.available(now, most=1) < 1:
            raise quota.exceeded(now, broker.quota_reached)
    quota.take(1, size)


async def _digest(broker: Broker, principal: Principal, topic: str) -> bytes | None:
    """Return the digest of the message's key, None if it has none; raise InvalidMessageKey.

    The keys of earlier runs are known afterwards.
    """
    key = MESSAGE_KEY.get()
    if key is None:
        return None
    digest = key_digest(principal.name, topic, key.encode("latin-1"))
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not ready.done():
            ready.set_result(None)

    broker.deduplication.when_ready(finish)
    await ready
    return digest


async def _answer(
    context: HttpContext, topic: str, receipt: Receipt, *, is_duplicate: bool
) -> Published:
    """Return the answer to a message once it is on disk; raise LogUnavailable."""
    broker = context.broker
    if not await settled(broker, receipt):
        raise LogUnavailable("the disk failed; publish it again once /readyz says ready")
    writer = broker.log
    identifier = message_id(writer.log_id, partition=writer.partition, offset=receipt.first_offset)
    return Published(
        topic=topic,
        partition=writer.partition,
        offset=receipt.first_offset,
        message_id=str(UUID(bytes=identifier)),
        durable=context.storage.keeps_history and receipt.durability is Durability.FSYNC,
        duplicate=is_duplicate,
    )


async def settled(broker: Broker, receipt: Receipt) -> bool:
    """Wait until an append is on disk, or has failed; return whether it is on disk."""
    outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def settle(safe: bool) -> None:  # noqa: FBT001
        if not outcome.done():  # else the client has disconnected
            outcome.set_result(safe)

    broker.when_settled(receipt, settle)
    return await outcome


def _value(message: Message) -> tuple[bytes, bool]:
    """Return the value, and whether it is text."""
    given = [
        each for each in (message.text, message.json, message.base64) if each is not msgspec.UNSET
    ]
    if len(given) != 1:
        problem = f"expected one of text, json and base64, got {len(given)} of them"
        raise ApiError(400, "bad-request", problem)
    value = given[0]
    if isinstance(value, str):
        return _utf8(value, "text"), True
    return (bytes(value), True) if isinstance(value, msgspec.Raw) else (value, False)


def _headers(message: Message) -> list[tuple[str, bytes]]:
    headers = [(key, _utf8(value, "headers")) for key, value in message.headers.items()]
    if len(headers) > MESSAGE_HEADERS_MAX or _size(headers) > MESSAGE_HEADERS_BYTES_MAX:
        problem = (
            f"headers: expected at most {MESSAGE_HEADERS_MAX} of at most "
            f"{MESSAGE_HEADERS_BYTES_MAX} bytes together"
        )
        raise ApiError(400, "bad-request", problem)
    for key, _ in headers:
        if is_reserved_header(key):
            raise ReservedHeader(key)
    return headers


def _size(headers: list[tuple[str, bytes]]) -> int:
    return sum(len(_utf8(key, "headers")) + len(value) for key, value in headers)


def _add_context(headers: list[tuple[str, bytes]]) -> None:
    """Keep the trace context of a request as a header of its message, unless that has its own."""
    given = TRACE_PARENT.get()
    if given is None or len(headers) >= MESSAGE_HEADERS_MAX:
        return
    text = given.encode("latin-1")
    if all(key != TRACE_HEADER for key, _ in headers) and parse_traceparent(text) is not None:
        headers.append((TRACE_HEADER, text))


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        problem = f"{field}: half of a surrogate pair is no text; send such bytes as base64"
        raise ApiError(400, "bad-request", problem) from None


async def _ask(context: HttpContext, event: Event) -> None:
    """Ask middleware to accept a message; raise its refusal."""
    context.broker.hooks.messages_judged += 1
    inquiry = context.broker.hooks.ask(event)
    error = inquiry.error
    if not inquiry.settled:
        verdict: asyncio.Future[PeerError | None] = asyncio.get_running_loop().create_future()

        def finish(error: PeerError | None) -> None:
            if not verdict.done():
                verdict.set_result(error)

        inquiry.then = finish
        try:
            error = await verdict
        except asyncio.CancelledError:
            inquiry.cancel()
            raise
    if error is not None:
        raise error


def _prepare(
    storage: Storage, row: dict[str, Any], *, sender: str, client: int, correlation: str
) -> Prepared:
    """Prepare one row of ROWS_SCHEMA; in a thread, because pyarrow is slow to import."""
    import pyarrow as pa  # noqa: PLC0415

    from penstock.storage.schema import ROWS_SCHEMA  # noqa: PLC0415

    rows = pa.RecordBatch.from_pylist([row], schema=ROWS_SCHEMA)
    prepared = storage.prepare(
        rows, sender=sender, client=client, source=HTTP, correlation=correlation
    )
    return next(prepared)
