"""The header map of fleximq: the table of section 2.2.3, parser and encoder."""

import dataclasses
import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, TypeAlias

from penstock.errors import FieldOutOfRange, WireError
from penstock.model import DEDUPE_HEADER
from penstock.protocols.fleximq import (
    FLEXIMQ_HEADER_DEPTH_MAX,
    FLEXIMQ_HEADER_ELEMENTS_CEILING,
    FLEXIMQ_HEADER_ELEMENTS_MAX,
    FLEXIMQ_HEADER_STRING_BYTES_MAX,
    FLEXIMQ_ROUTING_ENTRIES_CEILING,
    FLEXIMQ_ROUTING_ENTRIES_MAX,
)
from penstock.wire import messagepack
from penstock.wire.fleximq.canonical import parse_canonical
from penstock.wire.fleximq.errors import BadAuth, BadHeader, InvalidRouting
from penstock.wire.fleximq.packets import (
    ApiKeyAuth,
    Auth,
    BasicAuth,
    ClientId,
    Header,
    KeepAlive,
    MessageType,
    ReqRep,
    ReqRepType,
    Routing,
    TokenAuth,
)

__all__ = [
    "HEADER_CEILINGS",
    "HEADER_LIMITS",
    "JOIN_REPLY",
    "JOIN_WITH_REQREP",
    "REQUIREMENTS",
    "Field",
    "HeaderLimits",
    "Requirements",
    "check_header",
    "encode_header",
    "field_fault",
    "parse_header",
    "present_fields",
    "reqrep_id",
]

U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class HeaderLimits:
    """Limits of a header that are settings."""

    elements_max: int = FLEXIMQ_HEADER_ELEMENTS_MAX
    routing_entries_max: int = FLEXIMQ_ROUTING_ENTRIES_MAX

    @property
    def canonical_entries_max(self) -> int:
        """Routing entries of a header that need no count of elements.

        An entry has 5 elements, itself included; all other fields have 20 or fewer.
        """
        return min(self.routing_entries_max, (self.elements_max - 20) // 5)


HEADER_LIMITS: Final = HeaderLimits()
"""The defaults."""
HEADER_CEILINGS: Final = HeaderLimits(
    elements_max=FLEXIMQ_HEADER_ELEMENTS_CEILING,
    routing_entries_max=FLEXIMQ_ROUTING_ENTRIES_CEILING,
)
"""The highest values: a broker may be set to them, and its clients do not know."""


# --- Which fields a type has --------------------------------------------------------------------


class Field(enum.StrEnum):
    """The six fields, in the order of section 2.2.1."""

    ROUTING = "routing"
    REQREP = "reqrep"
    TOPIC = "topic"
    STATUS = "status"
    AUTH = "auth"
    KEEPALIVE = "keepalive"


_FIELD_ORDER: Final = tuple(Field)


@dataclasses.dataclass(frozen=True, slots=True)
class Requirements:
    """One row of the table; each field is in exactly one of the three sets."""

    required: frozenset[Field]
    optional: frozenset[Field]
    forbidden: frozenset[Field]


def _row(required: str, optional: str, forbidden: str) -> Requirements:
    return Requirements(
        *(frozenset(map(Field, c.split())) for c in (required, optional, forbidden))
    )


REQUIREMENTS: Final[Mapping[MessageType, Requirements]] = MappingProxyType(
    {
        MessageType.JOIN: _row("", "auth", "routing reqrep topic keepalive status"),
        MessageType.REQ: _row("routing reqrep", "status", "topic auth keepalive"),
        MessageType.REP: _row("routing reqrep", "status", "topic auth keepalive"),
        MessageType.NOTIF: _row("routing", "status", "reqrep topic auth keepalive"),
        MessageType.BCAST: _row("", "status", "routing reqrep topic auth keepalive"),
        MessageType.PUB: _row("topic", "routing status", "reqrep auth keepalive"),
        MessageType.SUB: _row("topic", "", "routing reqrep status auth keepalive"),
        MessageType.UNSUB: _row("topic", "", "routing reqrep status auth keepalive"),
        MessageType.PING: _row("keepalive", "", "routing reqrep topic status auth"),
        MessageType.PONG: _row("keepalive", "", "routing reqrep topic status auth"),
    }
)
"""The table of section 2.2.3."""

JOIN_WITH_REQREP: Final = _row("", "auth reqrep", "routing topic keepalive status")
"""JOIN as section 4.2 uses it, contrary to the table: its reply may be correlated."""

JOIN_REPLY: Final = _row("", "routing status reqrep", "topic auth keepalive")
"""The REP that answers JOIN (section 4.2): its receiver has no client id for `routing` yet, and
its JOIN may have had no `reqrep`."""


def field_fault(
    message_type: MessageType,
    present: AbstractSet[str],
    *,
    strict: bool = False,
    join_reply: bool = False,
) -> str | None:
    """Return the fault of a message with the fields `present` by the table, None if it has none.

    `strict` forbids `reqrep` in JOIN as the table does; `join_reply` allows a REP without `routing`
    and `reqrep` as the reply to JOIN.
    """
    row = REQUIREMENTS[message_type]
    if message_type is MessageType.JOIN and not strict:
        row = JOIN_WITH_REQREP
    elif message_type is MessageType.REP and join_reply:
        row = JOIN_REPLY
    if row.required <= present and row.forbidden.isdisjoint(present):
        return None
    missing = [field for field in Field if field in row.required and field not in present]
    extra = [field for field in Field if field in row.forbidden and field in present]
    faults = [f"without {field}" for field in missing] + [f"with {field}" for field in extra]
    return f"{message_type.name} {' and '.join(faults)}"


def present_fields(header: Header) -> frozenset[Field]:
    """Return the fields that `header` has."""
    values = (
        header.routing,
        header.reqrep,
        header.topic,
        header.status,
        header.auth,
        header.keepalive,
    )
    return frozenset(
        [field for field, value in zip(_FIELD_ORDER, values, strict=True) if value is not None]
    )


_REQREP_TYPES: Final = MappingProxyType(
    {
        MessageType.JOIN: ReqRepType.REQUEST,
        MessageType.REQ: ReqRepType.REQUEST,
        MessageType.REP: ReqRepType.CORRELATION,
    }
)


def check_header(
    message_type: MessageType, header: Header, *, limits: HeaderLimits = HEADER_LIMITS
) -> None:
    """Check the values of the fields for a message of this type (sections 2.2.2 and 7.3.1).

    Raise InvalidRouting or BadHeader.
    """
    if header.routing is not None:
        entries = len(header.routing)
        if message_type in (MessageType.REQ, MessageType.REP) and entries != 1:
            raise InvalidRouting(f"{message_type.name} with {entries} routing entries, not 1")
        if not 1 <= entries <= limits.routing_entries_max:
            raise InvalidRouting(
                f"{entries} routing entries, allowed are 1 to {limits.routing_entries_max}"
            )
    if header.reqrep is not None and header.reqrep.type is not _REQREP_TYPES[message_type]:
        raise BadHeader(f"{message_type.name} with reqrep.type {header.reqrep.type}")
    if (
        message_type is MessageType.PONG
        and header.keepalive is not None
        and header.keepalive.interval is not None
    ):
        raise BadHeader("PONG with keepalive.interval")


# --- Bytes to fields ----------------------------------------------------------------------------
#
# Maps are parsed field by field, not decoded whole, for three reasons: a Python dict hides a
# repeated key; an unknown field must be ignored even if Python cannot represent its value; and an
# error needs the id of its message although another field is wrong.

Fault: TypeAlias = type[BadHeader] | type[InvalidRouting] | type[BadAuth]

_NIL: Final = b"\xc0"
_FIELDS: Final[frozenset[str]] = frozenset(Field)
_PUB_FIELDS: Final = _FIELDS | {DEDUPE_HEADER}
_ROUTING_FIELDS: Final = frozenset({"client_id", "path"})
_REQREP_FIELDS: Final = frozenset({"type", "id"})
_AUTH_FIELDS: Final = frozenset({"type", "token", "username", "password", "api_key"})
_KEEPALIVE_FIELDS: Final = frozenset({"timestamp", "interval"})


def parse_header(
    data: bytes,
    message_type: MessageType,
    *,
    strict: bool = False,
    join_reply: bool = False,
    limits: HeaderLimits = HEADER_LIMITS,
) -> Header:
    """Parse the header of a message of this type; `strict` and `join_reply` as in `field_fault`.

    A field whose value is nil counts as absent; `strict` refuses it.

    Raise BadHeader, InvalidRouting or BadAuth: for the map itself, then for the table, then for
    the fields in the order of section 2.2.1, then for values that this type forbids.
    """
    header = parse_canonical(data, routing_entries_max=limits.canonical_entries_max)
    if header is None:
        return _parse_at_length(
            data, message_type, strict=strict, join_reply=join_reply, limits=limits
        )
    fault = field_fault(message_type, present_fields(header), strict=strict, join_reply=join_reply)
    if fault is not None:
        raise BadHeader(fault)
    check_header(message_type, header, limits=limits)
    return header


def _parse_at_length(
    data: bytes,
    message_type: MessageType,
    *,
    strict: bool,
    join_reply: bool,
    limits: HeaderLimits,
) -> Header:
    measured = _measured(data, limits)
    known = _PUB_FIELDS if message_type is MessageType.PUB else _FIELDS
    fields = _fields(measured, known, BadHeader, "the header", strict=strict)
    fault = field_fault(message_type, fields.keys(), strict=strict, join_reply=join_reply)
    if fault is not None:
        raise BadHeader(fault)
    header = Header(
        routing=_routing(fields["routing"], message_type, strict=strict)
        if "routing" in fields
        else None,
        reqrep=_reqrep(fields["reqrep"], strict=strict) if "reqrep" in fields else None,
        topic=_string(fields, "topic", BadHeader) if "topic" in fields else None,
        status=_unsigned(fields, "status", U16_MAX, BadHeader) if "status" in fields else None,
        auth=_auth(fields["auth"], strict=strict) if "auth" in fields else None,
        keepalive=_keepalive(fields["keepalive"], strict=strict) if "keepalive" in fields else None,
        dedupe=_string(fields, DEDUPE_HEADER, BadHeader) if DEDUPE_HEADER in fields else None,
    )
    check_header(message_type, header, limits=limits)
    return header


def reqrep_id(data: bytes, *, limits: HeaderLimits = HEADER_LIMITS) -> str | None:
    """Return the `reqrep.id` of a header with faults in other fields; None if it has none.

    The header must be a map with keys of type str and one `reqrep`, which must be a map with one
    `id`, a str that is not empty. Values of other fields may be a str that is not UTF-8.
    """
    try:
        measured = _measured(data, limits, check_text=False)
        header = _fields(measured, frozenset({"reqrep"}), BadHeader, "the header", check_text=False)
        reqrep = _fields(header["reqrep"], frozenset({"id"}), BadHeader, "reqrep", check_text=False)
        return messagepack.string(reqrep["id"]) or None
    except (BadHeader, messagepack.Malformed, KeyError):
        return None


def _measured(data: bytes, limits: HeaderLimits, *, check_text: bool = True) -> bytes:
    """Measure a header, which must be one value; a header of length 0 is an empty map (2.2)."""
    if not data:
        return b"\x80"
    try:
        end = messagepack.measure(
            data,
            0,
            depth_max=FLEXIMQ_HEADER_DEPTH_MAX,
            elements_max=limits.elements_max,
            string_bytes_max=FLEXIMQ_HEADER_STRING_BYTES_MAX,
            check_text=check_text,
        )
    except WireError as error:
        raise BadHeader(f"the header is not MessagePack within its caps: {error}") from None
    if end != len(data):
        raise BadHeader(f"the header's map ends at byte {end} of {len(data)}")
    return data


def _fields(
    data: bytes,
    known: AbstractSet[str],
    fault: Fault,
    name: str,
    *,
    strict: bool = False,
    check_text: bool = True,
) -> dict[str, bytes]:
    """Return the known fields of a map, each as its MessagePack bytes; others are ignored (7.4).

    A known field whose value is nil is left out; `strict` refuses it.
    """
    if messagepack.head(data, 0)[0] is not messagepack.Kind.MAP:
        raise fault(f"{name} is not a map")
    found: dict[str, bytes] = {}
    parts = messagepack.elements(data, check_text=check_text)
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        field = messagepack.string(key)
        if field is None:
            raise fault(f"{name} has a key that is not a str")
        if field in found:
            raise fault(f"{name} has {field} twice")
        if field in known:
            if strict and value == _NIL:
                raise fault(f"{name} has {field} without a value")
            found[field] = value
    return {field: value for field, value in found.items() if value != _NIL}


def _string(fields: Mapping[str, bytes], name: str, fault: Fault) -> str:
    value = messagepack.string(fields[name]) if name in fields else None
    if value is None:
        raise fault(f"{name} is missing or not a str")
    return value


def _unsigned(fields: Mapping[str, bytes], name: str, value_max: int, fault: Fault) -> int:
    value = messagepack.unsigned(fields[name], value_max) if name in fields else None
    if value is None:
        raise fault(f"{name} is missing or not an integer from 0 to {value_max}")
    return value


def _routing(data: bytes, message_type: MessageType, *, strict: bool) -> tuple[Routing, ...]:
    if messagepack.head(data, 0)[0] is not messagepack.Kind.ARRAY:
        raise InvalidRouting("routing is not an array")
    entries = messagepack.elements(data)
    return tuple(_routing_entry(entry, message_type, strict=strict) for entry in entries)


def _routing_entry(data: bytes, message_type: MessageType, *, strict: bool) -> Routing:
    fields = _fields(data, _ROUTING_FIELDS, InvalidRouting, "a routing entry", strict=strict)
    if message_type is MessageType.REQ and "client_id" not in fields and not strict:
        # A request to a service by its path alone; section 5.1.4 needs it only "where expected".
        return Routing(ClientId.BROKER, _string(fields, "path", InvalidRouting))
    client_id = _unsigned(fields, "client_id", U32_MAX, InvalidRouting)
    if message_type is MessageType.REP and "path" not in fields:
        return Routing(client_id, "")  # section 3.3: "Path might be omitted" in a response
    return Routing(client_id, _string(fields, "path", InvalidRouting))


def _reqrep(data: bytes, *, strict: bool) -> ReqRep:
    fields = _fields(data, _REQREP_FIELDS, BadHeader, "reqrep", strict=strict)
    try:
        reqrep_type = ReqRepType(_string(fields, "type", BadHeader))
    except ValueError:
        raise BadHeader("reqrep.type is neither request nor correlation") from None
    identifier = _string(fields, "id", BadHeader)
    if not identifier:
        raise BadHeader("reqrep.id is empty")
    return ReqRep(reqrep_type, identifier)


def _auth(data: bytes, *, strict: bool) -> Auth:
    fields = _fields(data, _AUTH_FIELDS, BadAuth, "auth", strict=strict)
    match _string(fields, "type", BadAuth):
        case "token":
            return TokenAuth(_string(fields, "token", BadAuth))
        case "basic":
            return BasicAuth(
                _string(fields, "username", BadAuth), _string(fields, "password", BadAuth)
            )
        case "api_key":
            return ApiKeyAuth(_string(fields, "api_key", BadAuth))
        case _:
            raise BadAuth("auth.type is none of token, basic and api_key")


def _keepalive(data: bytes, *, strict: bool) -> KeepAlive:
    fields = _fields(data, _KEEPALIVE_FIELDS, BadHeader, "keepalive", strict=strict)
    timestamp = _unsigned(fields, "timestamp", U64_MAX, BadHeader)
    if "interval" not in fields:
        return KeepAlive(timestamp)
    return KeepAlive(timestamp, _unsigned(fields, "interval", U32_MAX, BadHeader))


# --- Fields to bytes ----------------------------------------------------------------------------


def encode_header(header: Header) -> bytes:
    """Encode `header`, with fields in the order of section 2.2.1; without fields it is empty.

    Raise FieldOutOfRange if a number does not fit its field. The rules of the message type are
    not checked here.
    """
    fields: dict[str, object] = {}
    if header.routing is not None:
        fields["routing"] = [
            {"client_id": _checked("client_id", entry.client_id, U32_MAX), "path": entry.path}
            for entry in header.routing
        ]
    if header.reqrep is not None:
        fields["reqrep"] = {"type": header.reqrep.type.value, "id": header.reqrep.id}
    if header.topic is not None:
        fields["topic"] = header.topic
    if header.status is not None:
        fields["status"] = _checked("status", header.status, U16_MAX)
    if header.auth is not None:
        fields["auth"] = _auth_fields(header.auth)
    if header.keepalive is not None:
        fields["keepalive"] = _keepalive_fields(header.keepalive)
    if header.dedupe is not None:
        fields[DEDUPE_HEADER] = header.dedupe
    return messagepack.encode(fields) if fields else b""


def _auth_fields(auth: Auth) -> dict[str, str]:
    match auth:
        case TokenAuth(token):
            return {"type": "token", "token": token}
        case BasicAuth(username, password):
            return {"type": "basic", "username": username, "password": password}
        case ApiKeyAuth(api_key):
            return {"type": "api_key", "api_key": api_key}


def _keepalive_fields(keepalive: KeepAlive) -> dict[str, int]:
    fields = {"timestamp": _checked("timestamp", keepalive.timestamp, U64_MAX)}
    if keepalive.interval is not None:
        fields["interval"] = _checked("interval", keepalive.interval, U32_MAX)
    return fields


def _checked(field: str, value: int, value_max: int) -> int:
    if isinstance(value, bool) or not 0 <= value <= value_max:
        raise FieldOutOfRange(field, value, value_max)
    return value
