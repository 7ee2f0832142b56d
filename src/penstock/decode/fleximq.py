"""The layout of fleximq messages (section 2.1), and the fields that its errors are about."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.decode.layout import Data, Form, Layout, Number, Packed
from penstock.errors import WireError
from penstock.limits import FLEXIMQ_HEADER_BYTES_MAX, FLEXIMQ_MESSAGE_BYTES_CEILING
from penstock.wire.fleximq import errors
from penstock.wire.fleximq.headers import REQUIREMENTS
from penstock.wire.fleximq.packets import MessageType

__all__ = ["MESSAGE", "TYPES", "blamed"]

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
