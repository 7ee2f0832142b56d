"""The payload of fleximq, one MessagePack value, and its raw bytes for other protocols."""

import sys
from typing import Final

from penstock._kernels.fleximq import messagepack_end
from penstock.errors import WireError
from penstock.protocols.fleximq import FLEXIMQ_PAYLOAD_DEPTH_MAX
from penstock.wire import messagepack
from penstock.wire.fleximq.errors import BadPayload, FleximqError
from penstock.wire.fleximq.headers import HEADER_LIMITS, HeaderLimits, parse_header
from penstock.wire.fleximq.packets import MessageType

__all__ = ["check_payload", "publication", "raw_value", "wrap_value"]

PLAIN_BYTES_MAX: Final = 4096
"""Payloads up to this size are measured in Python, which says what is wrong and where."""


def check_payload(payload: bytes, *, depth_max: int = FLEXIMQ_PAYLOAD_DEPTH_MAX) -> None:
    """Raise BadPayload unless `payload` is empty or one MessagePack value of at most `depth_max`.

    The value is not built, so its elements have no limit but the bytes of the message.
    """
    if not payload:
        return
    if len(payload) > PLAIN_BYTES_MAX:
        # The kernel takes 10 ns for a value, `measure` half a microsecond.
        if messagepack_end(payload, depth_max) != len(payload):
            raise BadPayload(f"the payload is not one MessagePack value of depth {depth_max}")
        return
    try:
        end = messagepack.measure(
            payload,
            0,
            depth_max=depth_max,
            elements_max=sys.maxsize,
            string_bytes_max=len(payload),
        )
    except WireError as error:
        raise BadPayload(f"the payload is not MessagePack within its limits: {error}") from None
    if end != len(payload):
        raise BadPayload(f"the payload's value ends at byte {end} of {len(payload)}")


def raw_value(payload: bytes) -> bytes:
    """Return the value for other protocols: the bytes of a bin or str, else the payload itself.

    `payload` has passed `check_payload`.
    """
    if not payload:
        return b""
    kind, _, body_start = messagepack.head(payload, 0)
    if kind in (messagepack.Kind.BIN, messagepack.Kind.STR):
        return payload[body_start:]
    return payload


def wrap_value(value: bytes) -> bytes:
    """Return the bytes of another protocol as a payload: the shortest MessagePack bin."""
    return messagepack.encode(value)


def publication(
    header: bytes, *, strict: bool = False, limits: HeaderLimits = HEADER_LIMITS
) -> tuple[str, int | None] | None:
    """Return topic and status of the header of a valid PUB without routing and key, else None.

    Scanners call this once for each distinct header and cache the result.
    """
    try:
        fields = parse_header(header, MessageType.PUB, strict=strict, limits=limits)
    except FleximqError:
        return None
    if fields.routing is not None or fields.topic is None or fields.dedupe is not None:
        return None
    return fields.topic, fields.status
