"""A fast parser for headers in canonical form.

A header that msgspec decodes by the types below and encodes to the same bytes has no repeated or
unknown field and needs no further check. Most headers have this form. The parser in `headers`
handles all others, and names their faults.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.protocols.fleximq import FLEXIMQ_HEADER_STRING_BYTES_MAX
from penstock.wire.fleximq.packets import Header, KeepAlive, ReqRep, ReqRepType, Routing

__all__ = ["parse_canonical"]

_U16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
_U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_U64 = Annotated[int, Meta(ge=0)]


class _Routing(msgspec.Struct, forbid_unknown_fields=True):
    client_id: _U32
    path: str


class _ReqRep(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["request", "correlation"]
    id: Annotated[str, Meta(min_length=1)]


class _KeepAlive(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: _U64
    interval: _U32 | UnsetType = UNSET


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    routing: list[_Routing] | UnsetType = UNSET
    reqrep: _ReqRep | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    status: _U16 | UnsetType = UNSET
    keepalive: _KeepAlive | UnsetType = UNSET


_DECODER: Final = msgspec.msgpack.Decoder(_Fields)
_ENCODER: Final = msgspec.msgpack.Encoder()
_REQREP_TYPES: Final = {kind.value: kind for kind in ReqRepType}


def parse_canonical(data: bytes, *, routing_entries_max: int) -> Header | None:
    """Parse a header in canonical form; return None for any other, and for more entries."""
    if len(data) > FLEXIMQ_HEADER_STRING_BYTES_MAX:
        return None
    try:
        fields = _DECODER.decode(data)
        if _ENCODER.encode(fields) != data:
            return None
    except (TypeError, ValueError, OverflowError):  # a base of DecodeError
        return None
    routing, reqrep, keepalive = fields.routing, fields.reqrep, fields.keepalive
    if routing is not UNSET and len(routing) > routing_entries_max:
        return None
    return Header(
        routing=None
        if routing is UNSET
        else tuple([Routing(entry.client_id, entry.path) for entry in routing]),
        reqrep=None if reqrep is UNSET else ReqRep(_REQREP_TYPES[reqrep.type], reqrep.id),
        topic=None if fields.topic is UNSET else fields.topic,
        status=None if fields.status is UNSET else fields.status,
        keepalive=None
        if keepalive is UNSET
        else KeepAlive(
            keepalive.timestamp, None if keepalive.interval is UNSET else keepalive.interval
        ),
    )
