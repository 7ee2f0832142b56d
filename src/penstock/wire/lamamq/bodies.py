"""Readers of LamaMQ message bodies, one per message type.

A reader takes a cursor positioned after the message header. It raises Incomplete while fields are
missing, and LamaError if framing is lost. If the cursor noted a fault, the returned packet is a
placeholder.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from penstock.wire.lamamq.cursor import Cursor
from penstock.wire.lamamq.errors import BadRequest
from penstock.wire.lamamq.limits import Limits
from penstock.wire.lamamq.packets import (
    Condition,
    ConditionType,
    Forward,
    FromClient,
    HasHeader,
    HeaderIs,
    HookStrategy,
    HookType,
    Message,
    MessageType,
    PayloadType,
    Push,
    Register,
    Subscribe,
    TopicIs,
    Unregister,
    Unsubscribe,
)

__all__ = ["BODIES", "forward"]

_PAYLOAD_TYPES: Final = {payload_type.value: payload_type for payload_type in PayloadType}
_EMPTY: Final = PayloadType.EMPTY
_STRATEGIES: Final = {strategy.value: strategy for strategy in HookStrategy}
_HOOK_TYPES: Final = {hook_type.value: hook_type for hook_type in HookType}


def forward(cursor: Cursor, limits: Limits) -> Forward:
    """Read the body of a FORWARD."""
    return Forward(cursor.message_id, _message(cursor, limits))


def _push(cursor: Cursor, limits: Limits) -> Push:
    return Push(cursor.message_id, _message(cursor, limits))


def _message(cursor: Cursor, limits: Limits) -> Message:
    (created_at,) = cursor.unpack(cursor.layouts.u32)
    routing_key = cursor.string("routing key", limits.routing_key_bytes_max)
    headers = _headers(cursor, limits)
    number = cursor.byte()
    payload_type = _PAYLOAD_TYPES.get(number)
    if payload_type is None:
        raise BadRequest(cursor.message_id, f"unknown payload type {number}")
    payload = b""
    if payload_type is not _EMPTY:
        payload = cursor.buffer("payload", limits.payload_bytes_max)
    return Message(created_at, routing_key, headers, payload_type, payload)


def _headers(cursor: Cursor, limits: Limits) -> tuple[tuple[str, bytes], ...]:
    count = cursor.count("headers", limits.headers_max)
    if not count:
        return ()
    size_max = limits.headers_bytes_max
    start = cursor.position
    headers = []
    for _ in range(count):
        key = cursor.buffer("header", size_max, used=cursor.position + 4 - start)
        value = cursor.buffer("header", size_max, used=cursor.position + 4 - start)
        headers.append((cursor.text("header key", key), value))
    return tuple(headers)


def _subscribe(cursor: Cursor, limits: Limits) -> Subscribe:
    routing_key = cursor.string("routing key", limits.routing_key_bytes_max)
    return Subscribe(cursor.message_id, routing_key)


def _unsubscribe(cursor: Cursor, limits: Limits) -> Unsubscribe:
    routing_key = cursor.string("routing key", limits.routing_key_bytes_max)
    return Unsubscribe(cursor.message_id, routing_key)


def _register(cursor: Cursor, limits: Limits) -> Register:
    hook_name = _hook_name(cursor, limits)
    priority, timeout_ms, strategy, hook_type = cursor.unpack(cursor.layouts.hook)
    if hook_type not in _HOOK_TYPES:
        raise BadRequest(cursor.message_id, f"unknown hook type {hook_type}")
    if strategy not in _STRATEGIES:
        cursor.note(f"unknown strategy {strategy}")
    conditions: tuple[Condition, ...] = ()
    if hook_type == HookType.MESSAGE_PUSHED:
        count = cursor.count("hook conditions", limits.hook_conditions_max)
        conditions = tuple([_condition(cursor, limits) for _ in range(count)])
    return Register(
        cursor.message_id,
        hook_name,
        priority,
        timeout_ms,
        _STRATEGIES.get(strategy, HookStrategy.TELL),
        _HOOK_TYPES[hook_type],
        conditions,
    )


def _condition(cursor: Cursor, limits: Limits) -> Condition:
    match cursor.byte():
        case ConditionType.TOPIC_IS:
            return TopicIs(cursor.string("condition's topic", limits.routing_key_bytes_max))
        case ConditionType.HEADER_IS:
            size_max = limits.hook_condition_bytes_max
            header = cursor.string("condition's header", size_max)
            return HeaderIs(header, cursor.buffer("condition's value", size_max))
        case ConditionType.HAS_HEADER:
            return HasHeader(cursor.string("condition's header", limits.hook_condition_bytes_max))
        case number:
            raise BadRequest(cursor.message_id, f"unknown condition type {number}")


def _unregister(cursor: Cursor, limits: Limits) -> Unregister:
    return Unregister(cursor.message_id, _hook_name(cursor, limits))


def _hook_name(cursor: Cursor, limits: Limits) -> str:
    hook_name = cursor.string("hook name", limits.hook_name_bytes_max)
    if not hook_name:
        cursor.note("the hook name is empty")
    return hook_name


BODIES: Final[Mapping[int, Callable[[Cursor, Limits], FromClient]]] = MappingProxyType(
    {
        MessageType.PUSH: _push,
        MessageType.FORWARD: forward,
        MessageType.SUBSCRIBE: _subscribe,
        MessageType.UNSUBSCRIBE: _unsubscribe,
        MessageType.REGISTER: _register,
        MessageType.UNREGISTER: _unregister,
    }
)
"""Readers by message type; an absent type is unknown."""
