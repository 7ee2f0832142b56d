"""Publishing over HTTP: one message, answered when it is on disk.

It takes the path of a table's rows, which have keys and headers. In the log and for middleware its
protocol is `http`.
"""

import asyncio
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from penstock.core.access import Action, Principal
from penstock.core.hooks import Event, EventKind
from penstock.errors import InvalidTopicName, LogUnavailable, NotAllowed, PeerError
from penstock.limits import (
    MESSAGE_HEADERS_BYTES_MAX,
    MESSAGE_HEADERS_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from penstock.model import is_publishable, message_id
from penstock.protocols import HTTP
from penstock.server.http.answers import Message, Published
from penstock.server.http.errors import ApiError
from penstock.server.http.view import ServerView

if TYPE_CHECKING:
    from penstock.ports import Prepared

__all__ = ["publish"]

CORRELATION: Final = "http"


async def publish(view: ServerView, principal: Principal, message: Message) -> Published:
    """Publish a message; return when it is on disk, or taken where nothing is kept.

    Raise ApiError, InvalidTopicName, NotAllowed, HookRefused, HookTimeout, TopicTableFull or
    LogUnavailable; then nobody gets it, unless the disk failed after it was delivered.
    """
    broker = view.broker
    value, is_text = _value(message)
    headers = _headers(message)
    topic = message.topic
    if not is_publishable(topic) or len(_utf8(topic, "topic")) > TOPIC_NAME_BYTES_MAX:
        raise InvalidTopicName(topic[:200])
    if not principal.may(Action.PUBLISH, topic):
        raise NotAllowed(principal.name, Action.PUBLISH, topic)
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
        await _ask(view, event)
    if not view.client:
        view.client = broker.sessions.next_number()
    key = None if message.key is None else _utf8(message.key, "key")
    group = await asyncio.to_thread(
        _prepare, topic, value, key, headers, sender=principal.name, client=view.client
    )
    receipt = broker.publish_prepared(group)
    broker.counters.messages_received_by_http += 1
    settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def settle(safe: bool) -> None:  # noqa: FBT001
        if not settled.done():  # else whoever asked has left
            settled.set_result(safe)

    broker.when_settled(receipt, settle)
    if not await settled:
        raise LogUnavailable("the disk failed; publish it again once /readyz says ready")
    writer = broker.log
    identifier = message_id(writer.log_id, partition=writer.partition, offset=receipt.first_offset)
    return Published(
        topic=topic,
        partition=writer.partition,
        offset=receipt.first_offset,
        message_id=str(UUID(bytes=identifier)),
        durable=view.log is not None,
    )


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
    size = sum(len(_utf8(key, "headers")) + len(value) for key, value in headers)
    if len(headers) > MESSAGE_HEADERS_MAX or size > MESSAGE_HEADERS_BYTES_MAX:
        problem = (
            f"headers: expected at most {MESSAGE_HEADERS_MAX} of at most "
            f"{MESSAGE_HEADERS_BYTES_MAX} bytes together"
        )
        raise ApiError(400, "bad-request", problem)
    return headers


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        problem = f"{field}: half of a surrogate pair is no text; send such bytes as base64"
        raise ApiError(400, "bad-request", problem) from None


async def _ask(view: ServerView, event: Event) -> None:
    """Have middleware judge a message; raise what refuses it."""
    view.broker.hooks.messages_judged += 1
    inquiry = view.broker.hooks.ask(event)
    error = inquiry.error
    if not inquiry.settled:
        verdict: asyncio.Future[PeerError | None] = asyncio.get_running_loop().create_future()

        def told(error: PeerError | None) -> None:
            if not verdict.done():
                verdict.set_result(error)

        inquiry.then = told
        try:
            error = await verdict
        except asyncio.CancelledError:
            inquiry.cancel()
            raise
    if error is not None:
        raise error


def _prepare(
    topic: str,
    value: bytes,
    key: bytes | None,
    headers: list[tuple[str, bytes]],
    *,
    sender: str,
    client: int,
) -> "Prepared":
    import pyarrow as pa  # noqa: PLC0415  (a cost that only who publishes pays)

    from penstock.storage.arrow.write.prepared import ROWS_SCHEMA, prepare  # noqa: PLC0415

    row = {
        "topic": topic,
        "value": value,
        "key": key,
        "headers": [{"key": name, "value": text} for name, text in headers],
    }
    rows = pa.RecordBatch.from_pylist([row], schema=ROWS_SCHEMA)
    groups = prepare(rows, sender=sender, client=client, source=HTTP, correlation=CORRELATION)
    return next(iter(groups))
