"""The encoder of LamaMQ, in either byte order. `layouts` draws the byte layouts."""

from collections.abc import Iterable
from typing import Final

from penstock.errors import FieldOutOfRange
from penstock.model import ByteOrder
from penstock.wire.lamamq.layouts import LAYOUTS, Layouts
from penstock.wire.lamamq.limits import DEFAULT_LIMITS, Limits
from penstock.wire.lamamq.packets import (
    Answer,
    Authentication,
    Condition,
    ConditionType,
    Forward,
    HasHeader,
    HeaderIs,
    HookType,
    Message,
    MessageType,
    Packet,
    PayloadType,
    Push,
    Register,
    Subscribe,
    TopicIs,
    Unregister,
    Unsubscribe,
    VersionChoice,
    VersionOffer,
)

__all__ = ["encode"]

_U8_MAX: Final = 0xFF
_U32_MAX: Final = 0xFFFF_FFFF
_EMPTY: Final = PayloadType.EMPTY


def encode(packet: Packet, *, order: ByteOrder = "big", limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Encode a packet of either role.

    Raise FieldOutOfRange if a value does not fit its field or exceeds the limit of a decoder
    with the same limits.
    """
    return b"".join(_parts(packet, LAYOUTS[order], limits))


def _parts(packet: Packet, layouts: Layouts, limits: Limits) -> Iterable[bytes]:
    match packet:
        case Forward(message_id, message):
            return _message(message_id, MessageType.FORWARD, message, layouts, limits)
        case Push(message_id, message):
            return _message(message_id, MessageType.PUSH, message, layouts, limits)
        case Answer(message_id, error, text):
            header = _header(message_id, error or 0, layouts)
            text_bytes = text.encode()
            if error is None:
                _check("error message length", len(text_bytes), 0)
                return (header,)
            size_max = limits.error_message_bytes_max
            return header, *_counted("error message", text_bytes, size_max, layouts)
        case Subscribe(message_id, routing_key):
            return (
                _header(message_id, MessageType.SUBSCRIBE, layouts),
                *_routing_key(routing_key, layouts, limits),
            )
        case Unsubscribe(message_id, routing_key):
            return (
                _header(message_id, MessageType.UNSUBSCRIBE, layouts),
                *_routing_key(routing_key, layouts, limits),
            )
        case Register():
            return _register(packet, layouts, limits)
        case Unregister(message_id, hook_name):
            return (
                _header(message_id, MessageType.UNREGISTER, layouts),
                *_hook_name(hook_name, layouts, limits),
            )
        case Authentication():
            return _authentication(packet, layouts, limits)
        case VersionOffer(maximum, minimum):
            return (_version(*maximum), _version(*minimum))
        case VersionChoice(major, minor):
            return (_version(major, minor),)


def _message(
    message_id: int, message_type: MessageType, message: Message, layouts: Layouts, limits: Limits
) -> list[bytes]:
    routing_key = message.routing_key.encode()
    payload = message.payload
    payload_type = message.payload_type
    _check("message id", message_id, _U32_MAX)
    _check("created at", message.created_at, _U32_MAX)
    _check("routing key length", len(routing_key), limits.routing_key_bytes_max)
    _check("header count", len(message.headers), limits.headers_max)
    parts = [
        layouts.message.pack(message_id, message_type, message.created_at, len(routing_key)),
        routing_key,
        layouts.array.pack(len(message.headers)),
    ]
    if message.headers:
        parts += _headers(message.headers, layouts, limits)
    if payload_type is _EMPTY:
        _check("payload length", len(payload), 0)
        parts.append(b"\x00")
    else:
        _check("payload length", len(payload), limits.payload_bytes_max)
        parts += layouts.payload.pack(payload_type, len(payload)), payload
    return parts


def _headers(
    headers: tuple[tuple[str, bytes], ...], layouts: Layouts, limits: Limits
) -> list[bytes]:
    parts: list[bytes] = []
    for key, value in headers:
        parts += _counted("header", key.encode(), limits.headers_bytes_max, layouts)
        parts += _counted("header", value, limits.headers_bytes_max, layouts)
    _check("headers length", sum(map(len, parts)), limits.headers_bytes_max)
    return parts


def _register(hook: Register, layouts: Layouts, limits: Limits) -> list[bytes]:
    _check("priority", hook.priority, _U32_MAX)
    _check("timeout", hook.timeout_ms, _U32_MAX)
    parts = [
        _header(hook.message_id, MessageType.REGISTER, layouts),
        *_hook_name(hook.hook_name, layouts, limits),
        layouts.hook.pack(hook.priority, hook.timeout_ms, hook.strategy, hook.hook_type),
    ]
    if hook.hook_type is not HookType.MESSAGE_PUSHED:
        _check("hook condition count", len(hook.conditions), 0)
        return parts
    _check("hook condition count", len(hook.conditions), limits.hook_conditions_max)
    parts.append(layouts.array.pack(len(hook.conditions)))
    for condition in hook.conditions:
        parts += _condition(condition, layouts, limits)
    return parts


def _condition(condition: Condition, layouts: Layouts, limits: Limits) -> Iterable[bytes]:
    match condition:
        case TopicIs(topic):
            return (
                _byte("condition type", ConditionType.TOPIC_IS),
                *_routing_key(topic, layouts, limits),
            )
        case HeaderIs(header, value):
            size_max = limits.hook_condition_bytes_max
            return (
                _byte("condition type", ConditionType.HEADER_IS),
                *_counted("condition's header", header.encode(), size_max, layouts),
                *_counted("condition's value", value, size_max, layouts),
            )
        case HasHeader(header):
            size_max = limits.hook_condition_bytes_max
            return (
                _byte("condition type", ConditionType.HAS_HEADER),
                *_counted("condition's header", header.encode(), size_max, layouts),
            )


def _authentication(
    authentication: Authentication, layouts: Layouts, limits: Limits
) -> Iterable[bytes]:
    name, key = authentication.name.encode(), authentication.key
    parts = [
        _byte("authentication method", authentication.method),
        *_counted("identity name", name, limits.identity_name_bytes_max, layouts),
    ]
    if key is not None:
        parts += _counted("identity key", key, limits.identity_key_bytes_max, layouts)
    return parts


def _header(message_id: int, kind: int, layouts: Layouts) -> bytes:
    _check("message id", message_id, _U32_MAX)
    return layouts.header.pack(message_id, kind)


def _routing_key(routing_key: str, layouts: Layouts, limits: Limits) -> tuple[bytes, bytes]:
    return _counted("routing key", routing_key.encode(), limits.routing_key_bytes_max, layouts)


def _hook_name(hook_name: str, layouts: Layouts, limits: Limits) -> tuple[bytes, bytes]:
    return _counted("hook name", hook_name.encode(), limits.hook_name_bytes_max, layouts)


def _counted(name: str, data: bytes, size_max: int, layouts: Layouts) -> tuple[bytes, bytes]:
    _check(f"{name} length", len(data), size_max)
    return layouts.u32.pack(len(data)), data


def _version(major: int, minor: int) -> bytes:
    return _byte("major version", major) + _byte("minor version", minor)


def _byte(field: str, value: int) -> bytes:
    _check(field, value, _U8_MAX)
    return bytes((value,))


def _check(field: str, value: int, value_max: int) -> None:
    if not 0 <= value <= value_max:
        raise FieldOutOfRange(field, value, value_max)
