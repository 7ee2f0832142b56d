"""The layout of fleximq messages (section 2.1), and the fields that its errors are about."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.decode.layout import Data, Form, Layout, Number, Packed
from penstock.decode.reading import Reading, Side, error_code
from penstock.errors import WireError
from penstock.protocols.fleximq import (
    FLEXIMQ_HEADER_BYTES_MAX,
    FLEXIMQ_MESSAGE_BYTES_CEILING,
)
from penstock.wire import fleximq
from penstock.wire.fleximq import errors
from penstock.wire.fleximq.headers import REQUIREMENTS
from penstock.wire.fleximq.packets import MessageType

__all__ = ["MESSAGE", "READING", "TYPES", "blamed"]

TYPES: Final[Mapping[int, str]] = MappingProxyType(
    dict(
        enumerate(
            ("JOIN", "REQ", "REP", "NOTIF", "BCAST", "PUB", "SUB", "UNSUB", "PING", "PONG"),
        )
    )
)

MESSAGE: Final[Layout] = (
    Number("Version", 1, MappingProxyType({1: "fleximq v1"}), closed=True),
    Number("Type", 1, TYPES, closed=True),
    Number("ClientID", 4, MappingProxyType({0: "UNASSIGNED", 1: "BROKER"})),
    Data("Reserved", 16, Form.ZEROS),
    Number("HeaderLength", 4, maximum=FLEXIMQ_HEADER_BYTES_MAX),
    Packed("Header", "HeaderLength", expand=True),
    Number("PayloadLength", 8, maximum=FLEXIMQ_MESSAGE_BYTES_CEILING),
    Packed("Payload", "PayloadLength"),
)

_BLAMED: Final[Mapping[type[WireError], str]] = MappingProxyType(
    {
        errors.BadClientId: "ClientID",
        errors.InvalidRouting: "Header.routing",
        errors.BadAuth: "Header.auth",
        errors.BadHeader: "Header",
        errors.BadPayload: "Payload",
    }
)


def blamed(error: WireError, message_type: int) -> tuple[str, ...]:
    """Return the names of fields that `error` may be about, the likeliest first."""
    name = _BLAMED.get(type(error), "")
    if isinstance(error, errors.BadHeader) and message_type in TYPES:
        forbidden = REQUIREMENTS[MessageType(message_type)].forbidden
        return (*(f"Header.{field}" for field in sorted(forbidden)), name)
    return (name,) if name else ()


class _Fleximq(Side):
    mark = bytes(16)  # the reserved bytes
    mark_at = 6

    def layout(self, data: bytes) -> tuple[str, Layout]:
        name = TYPES.get(data[1], "unknown Type") if len(data) > 1 else "message"
        return name, MESSAGE

    def blamed(self, error: WireError, data: bytes) -> tuple[str, ...]:
        return blamed(error, data[1])


_OF_SERVERS: Final = frozenset({MessageType.REP, MessageType.NOTIF})


def _is_server(data: bytes) -> bool:
    return len(data) >= 22 and data[0] == 1 and data[1] in TYPES and not any(data[6:22])


def _error_name(error: WireError) -> str:
    if isinstance(error, fleximq.FleximqError):
        return f"{error.status.value} {error.status.name.replace('_', ' ').title()}"
    return error_code(error)


def _is_client(data: bytes) -> bool:
    if len(data) < 2:
        return True
    joins = data[1] == MessageType.JOIN
    return data[1] not in _OF_SERVERS and not (joins and any(data[2:6]))  # JOIN has client id 0


READING: Final = Reading(
    sides=lambda order, alone: (  # noqa: ARG005
        _Fleximq(fleximq.BrokerDecoder(message_bytes_max=FLEXIMQ_MESSAGE_BYTES_CEILING), order),
        _Fleximq(fleximq.ClientDecoder(message_bytes_max=FLEXIMQ_MESSAGE_BYTES_CEILING), order),
    ),
    is_client=_is_client,
    is_server=_is_server,
    order=lambda of_client, others: "big",  # noqa: ARG005
    error_name=_error_name,
)
