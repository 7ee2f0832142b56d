"""Layouts of LamaMQ packets; names come from the specification, else from the profile."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.decode.layout import Choice, Data, Form, Layout, Number, Repeat
from penstock.decode.reading import Reading, Side, error_code
from penstock.errors import WireError
from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.model import ByteOrder
from penstock.protocols.lamamq import (
    LAMAMQ,
    LAMAMQ_HEADERS_MAX,
    LAMAMQ_HOOK_CONDITIONS_MAX,
    LAMAMQ_HOOK_NAME_BYTES_MAX,
    LAMAMQ_IDENTITY_KEY_BYTES_MAX,
    LAMAMQ_IDENTITY_NAME_BYTES_MAX,
    LAMAMQ_PAYLOAD_BYTES_MAX,
)
from penstock.wire import lamamq
from penstock.wire.decoder import Buffer
from penstock.wire.detect import conclude

__all__ = [
    "ANSWER",
    "AUTHENTICATION",
    "AUTHENTICATION_WITH_KEY",
    "MESSAGE",
    "MESSAGES",
    "READING",
    "VERSION_CHOICE",
    "VERSION_OFFER",
    "AwaitedIds",
    "keyless_name_end",
]


def _string(name: str, maximum: int | None = None, form: Form = Form.TEXT) -> Layout:
    """Return the layout of a STRING or BUFFER."""
    return Number(f"{name} size", 4, maximum=maximum), Data(name, f"{name} size", form)


# --- Handshake ------------------------------------------------------------------------------------

AUTHENTICATION: Final[Layout] = (
    Number("auth_method", 1, MappingProxyType({0: "the only one"}), closed=True),
    *_string("identity_name", LAMAMQ_IDENTITY_NAME_BYTES_MAX),
)
AUTHENTICATION_WITH_KEY: Final[Layout] = (
    *AUTHENTICATION,
    *_string("identity_key", LAMAMQ_IDENTITY_KEY_BYTES_MAX, Form.BYTES),
)
VERSION_OFFER: Final[Layout] = (
    Number("max_version_major_supported", 1),
    Number("max_version_minor_supported", 1),
    Number("min_version_major_supported", 1),
    Number("min_version_minor_supported", 1),
)
VERSION_CHOICE: Final[Layout] = (
    Number("version_used_major", 1),
    Number("version_used_minor", 1),
)
KEY_AND_CHOICE: Final[Layout] = (
    *_string("identity_key", LAMAMQ_IDENTITY_KEY_BYTES_MAX, Form.BYTES),
    *VERSION_CHOICE,
)
"""A key that follows the offer instead of the name."""

# --- Messages -------------------------------------------------------------------------------------

MESSAGES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "Push message",
        1: "Forward message",
        32: "Topic subscribe",
        33: "Topic unsubscribe",
        64: "Middleware register",
        65: "Middleware unregister",
    }
)
_ERRORS: Final = MappingProxyType(
    {
        0: "no error",
        1: "Server Exception",
        2: "Bad request",
        3: "Middleware timeout",
        4: "Middleware refused",
    }
)
_PAYLOADS: Final = MappingProxyType({0: "payload_empty", 1: "payload_string", 2: "payload_buffer"})
_STRATEGIES: Final = MappingProxyType(
    {
        0: "tell and go on",
        1: "wait and refuse when no answer",
        2: "wait and go on when no answer",
    }
)
_HOOKS: Final = MappingProxyType(
    {
        0: "connect",
        1: "disconnect",
        16: "message pushed",
        32: "subscribed",
        33: "unsubscribed",
        64: "registered",
        65: "unregistered",
    }
)
_CONDITIONS: Final = MappingProxyType({0: "topic is", 4: "header is", 5: "has header"})

_PAYLOAD: Final[Layout] = _string("payload", LAMAMQ_PAYLOAD_BYTES_MAX, Form.NAME)
_CONTENT: Final[Layout] = (
    Number("created at", 4),
    *_string("routing key", TOPIC_NAME_BYTES_MAX),
    Number("headers", 2, maximum=LAMAMQ_HEADERS_MAX),
    Repeat("headers", "headers", (*_string("key"), *_string("value", form=Form.NAME))),
    Number("payload type", 1, _PAYLOADS, closed=True),
    Choice("payload type", MappingProxyType({1: _PAYLOAD, 2: _PAYLOAD}), other=()),
)
_CONDITION: Final[Layout] = (
    Number("condition type", 1, _CONDITIONS, closed=True),
    Choice(
        "condition type",
        MappingProxyType(
            {
                0: _string("topic", TOPIC_NAME_BYTES_MAX),
                4: (*_string("header"), *_string("value", form=Form.NAME)),
                5: _string("header"),
            }
        ),
        other=(),
    ),
)
_REGISTER: Final[Layout] = (
    *_string("hook name", LAMAMQ_HOOK_NAME_BYTES_MAX),
    Number("priority", 4),
    Number("timeout in ms", 4),
    Number("strategy", 1, _STRATEGIES, closed=True),
    Number("hook type", 1, _HOOKS, closed=True),
    Choice(
        "hook type",
        MappingProxyType(
            {
                16: (
                    Number("conditions", 2, maximum=LAMAMQ_HOOK_CONDITIONS_MAX),
                    Repeat("conditions", "conditions", _CONDITION),
                )
            }
        ),
        other=(),
    ),
)
_SUBSCRIPTION: Final[Layout] = _string("routing key", TOPIC_NAME_BYTES_MAX)

MESSAGE: Final[Layout] = (
    Number("Message id", 4),
    Number("Message type", 1, MESSAGES, closed=True),
    Choice(
        "Message type",
        MappingProxyType(
            {
                0: _CONTENT,
                1: _CONTENT,
                32: _SUBSCRIPTION,
                33: _SUBSCRIPTION,
                64: _REGISTER,
                65: _string("hook name", LAMAMQ_HOOK_NAME_BYTES_MAX),
            }
        ),
        other=(),
    ),
)

ANSWER: Final[Layout] = (
    Number("message id", 4),
    Number("error", 1, _ERRORS, closed=True),
    Choice("error", MappingProxyType({0: ()}), other=_string("error_message")),
)


class AwaitedIds(set[int]):
    """A set of awaited ids that is defined by a function."""

    def __init__(self, holds: Callable[[int], bool]) -> None:
        super().__init__()
        self._holds = holds

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, int) and self._holds(identifier)


class _Client(Side):
    """Packets from a client. After it registers a hook, the top bit of an id marks its answers."""

    def __init__(self, order: ByteOrder, server: "_Server | None") -> None:
        decoder = lamamq.BrokerDecoder(order=order)
        decoder.awaited = AwaitedIds(lambda number: self._hooks and number >= lamamq.BROKER_ID_BIT)
        super().__init__(decoder, order)
        self._hooks = False
        self._frames = 0
        self._server = server

    def layout(self, data: bytes) -> tuple[str, Layout]:
        if self._frames == 0:
            name_end = 5 + int.from_bytes(data[1:5], self.order)
            if len(data) > name_end:
                return "Authentification", AUTHENTICATION_WITH_KEY
            return "Authentification", AUTHENTICATION
        if self._frames == 1:
            late_key = len(data) > len(VERSION_CHOICE)
            return "Protocol version to use", KEY_AND_CHOICE if late_key else VERSION_CHOICE
        if self._hooks and int.from_bytes(data[:4], self.order) >= lamamq.BROKER_ID_BIT:
            return "Answer", ANSWER
        return _message_name(data), MESSAGE

    def passed(self, packet: Any) -> None:  # noqa: ANN401
        self._frames += 1
        if isinstance(packet, lamamq.Register):
            self._hooks = True
        if self._server is not None and not isinstance(packet, lamamq.Answer):
            identifier = getattr(packet, "message_id", None)
            error = getattr(packet, "error", None)  # a rejected request has an answer too
            if identifier is None and isinstance(error, lamamq.LamaError):
                identifier = error.message_id
            if identifier is not None:
                self._server.awaited.add(identifier)


class _Server(Side):
    """Packets from a server. `awaited` holds the ids of the requests in the capture."""

    def __init__(self, order: ByteOrder, *, alone: bool) -> None:
        decoder = lamamq.ClientDecoder(order=order)
        if alone:
            decoder.awaited = AwaitedIds(lambda number: number < lamamq.BROKER_ID_BIT)
        self.awaited = decoder.awaited
        super().__init__(decoder, order)
        self._offered = False
        self._answers = False

    def decode_at(self, data: Buffer, start: int) -> tuple[Any, int] | None:
        identifier = int.from_bytes(data[start : start + 4], self.order)
        self._answers = identifier == 0 or identifier in self.awaited
        return super().decode_at(data, start)

    def layout(self, data: bytes) -> tuple[str, Layout]:
        if not self._offered and any(data[:4]):
            return "Supported protocol version", VERSION_OFFER
        if self._answers or data[4:5] not in {b"\x01", b""}:
            return "Answer", ANSWER
        return _message_name(data), MESSAGE

    def passed(self, packet: Any) -> None:  # noqa: ANN401
        self._offered = self._offered or isinstance(packet, lamamq.VersionOffer)


def _message_name(data: bytes) -> str:
    if len(data) < 5:
        return "message"
    return MESSAGES.get(data[4], "unknown Message type")


# --- Reading --------------------------------------------------------------------------------------

_VERSION_PARTS_MAX: Final = 16  # each byte of a version offer is assumed to be below


def _sides(order: ByteOrder, alone: bool) -> tuple[Side, Side]:  # noqa: FBT001
    server = _Server(order, alone=alone)
    return _Client(order, None if alone else server), server


def _is_server(data: bytes) -> bool:
    offer = data[:4]
    return (
        len(offer) == 4
        and max(offer) < _VERSION_PARTS_MAX
        and offer[0] != 0
        and offer[:2] >= offer[2:]
    )


def _order(of_client: bytes, others: bytes) -> ByteOrder:  # noqa: ARG001
    try:
        found = conclude(of_client) if of_client else None
    except WireError:
        found = None
    return found.order if found is not None and found.protocol is LAMAMQ else "big"


def keyless_name_end(data: bytes, order: ByteOrder) -> int:
    """Return where the name of a LamaMQ client ends, 0 if a key follows it.

    No key follows if the next bytes are an offered version, or cannot be the length of a key. Bytes
    that can be both, in little-endian order, are taken for a version.
    """
    name_end = 5 + int.from_bytes(data[1:5], order)
    following = data[name_end : name_end + 4]
    if len(following) >= 2 and lamamq.accepts(lamamq.VersionChoice(*following[:2])):
        return name_end
    size = int.from_bytes(following, order)
    return name_end if len(following) == 4 and size > LAMAMQ_IDENTITY_KEY_BYTES_MAX else 0


READING: Final = Reading(
    sides=_sides,
    is_client=lambda data: data[:1] == b"\x00",
    is_server=_is_server,
    order=_order,
    error_name=lambda error: (
        "Bad request" if isinstance(error, lamamq.LamaError) else error_code(error)
    ),
    first_packet_end=keyless_name_end,
)
