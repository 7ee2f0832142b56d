"""fleximq frames from the specification: struct and MessagePack, independent of the codec."""

import struct
from typing import Any, Final, NamedTuple

from penstock.conform.fleximq.messagepack import Ext, pack, unpack

__all__ = [
    "BCAST",
    "BROKER",
    "FIXED_BYTES",
    "JOIN",
    "NAMES",
    "NOTIF",
    "PING",
    "PONG",
    "PUB",
    "REP",
    "REQ",
    "SUB",
    "UNSUB",
    "Ext",
    "Frame",
    "Header",
    "correlation",
    "frame",
    "header_length",
    "keepalive",
    "pack",
    "parse",
    "request",
    "routing",
    "status",
    "topic",
    "unpack",
]

JOIN, REQ, REP, NOTIF, BCAST, PUB, SUB, UNSUB, PING, PONG = range(10)
NAMES: Final = ("JOIN", "REQ", "REP", "NOTIF", "BCAST", "PUB", "SUB", "UNSUB", "PING", "PONG")
BROKER: Final = 1
FIXED_BYTES: Final = 34

Header = dict[str, Any]

# --- Frames (section 2.1) -------------------------------------------------------------------------


class Frame(NamedTuple):
    """A parsed frame; `header` is the map, `payload` the raw bytes."""

    type: int
    client_id: int
    header: Header
    payload: bytes

    @property
    def value(self) -> Any:  # noqa: ANN401  (MessagePack has values of any type)
        """The payload as a value; raises ValueError."""
        return unpack(self.payload)


def frame(
    message_type: int,
    client_id: int,
    header: Header | bytes = b"",
    payload: bytes = b"",
    *,
    version: int = 1,
    reserved: bytes = bytes(16),
) -> bytes:
    """Return the bytes of a frame; a header that is a map is packed."""
    head = header if isinstance(header, bytes) else pack(header)
    return b"".join(
        (
            struct.pack(">BBI", version, message_type, client_id),
            reserved,
            struct.pack(">I", len(head)),
            head,
            struct.pack(">Q", len(payload)),
            payload,
        )
    )


def header_length(base: bytes) -> int:
    """Return the size of the header, from the first 26 bytes of a frame."""
    return int(struct.unpack_from(">I", base, 22)[0])


def parse(data: bytes) -> Frame:
    """Parse a frame; raise ValueError if it breaks section 2.1."""
    version, message_type, client_id = struct.unpack_from(">BBI", data)
    if version != 1:
        raise ValueError(f"version {version} instead of 1")
    if any(data[6:22]):
        raise ValueError("reserved bytes are not zero")
    header_end = 26 + header_length(data)
    header = unpack(data[26:header_end]) if header_end > 26 else {}
    (payload_bytes,) = struct.unpack_from(">Q", data, header_end)
    payload = data[header_end + 8 :]
    if not isinstance(header, dict):
        raise ValueError("the header is not a map")  # noqa: TRY004
    if len(payload) != payload_bytes:
        raise ValueError(f"a payload of {len(payload)} bytes instead of {payload_bytes}")
    return Frame(message_type, client_id, header, payload)


# --- Header fields (section 2.2.2) ----------------------------------------------------------------


def routing(*entries: tuple[int, str]) -> Header:
    """Return the field `routing`."""
    return {"routing": [{"client_id": number, "path": path} for number, path in entries]}


def request(identifier: str) -> Header:
    """Return the field `reqrep` of a request."""
    return {"reqrep": {"type": "request", "id": identifier}}


def correlation(identifier: str) -> Header:
    """Return the field `reqrep` of a response."""
    return {"reqrep": {"type": "correlation", "id": identifier}}


def topic(name: str) -> Header:
    """Return the field `topic`."""
    return {"topic": name}


def status(code: int) -> Header:
    """Return the field `status`."""
    return {"status": code}


def keepalive(timestamp: int, **more: int) -> Header:
    """Return the field `keepalive`."""
    return {"keepalive": {"timestamp": timestamp, **more}}
