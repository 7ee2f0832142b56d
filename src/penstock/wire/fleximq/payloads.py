"""The payload of fleximq, one MessagePack value, and its raw bytes for other protocols."""

from typing import Final

from penstock._kernels.fleximq import messagepack_end
from penstock.errors import WireError
from penstock.protocols.fleximq import (
    FLEXIMQ_PAYLOAD_DEPTH_MAX,
    FLEXIMQ_PAYLOAD_ELEMENTS_MAX,
)
from penstock.wire import messagepack
from penstock.wire.fleximq.errors import BadPayload, FleximqError
from penstock.wire.fleximq.headers import parse_header
from penstock.wire.fleximq.packets import MessageType

__all__ = ["check_payload", "publication", "raw_value", "wrap_value"]

PLAIN_BYTES_MAX: Final = 4096
"""Payloads up to this size are measured in Python, which says what is wrong and where."""


def check_payload(payload: bytes) -> None:
    """Raise BadPayload unless `payload` is empty or one MessagePack value within the limits."""
    if not payload:
        return
    if len(payload) > PLAIN_BYTES_MAX:
        # The kernel takes 10 ns for a value, `measure` half a microsecond.
        depth_max, elements_max = FLEXIMQ_PAYLOAD_DEPTH_MAX, FLEXIMQ_PAYLOAD_ELEMENTS_MAX
        if messagepack_end(payload, depth_max, elements_max) != len(payload):
            raise BadPayload("the payload is not one MessagePack value within its caps")
        return
    try:
        end = messagepack.measure(
            payload,
            0,
            depth_max=FLEXIMQ_PAYLOAD_DEPTH_MAX,
            elements_max=FLEXIMQ_PAYLOAD_ELEMENTS_MAX,
            string_bytes_max=len(payload),
        )
    except WireError as error:
        raise BadPayload(f"the payload is not MessagePack within its caps: {error}") from None
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


def publication(header: bytes) -> tuple[str, int | None] | None:
    """Return topic and status of the header of a valid PUB without routing, else None.

    Scanners call this once for each distinct header and cache the result.
    """
    try:
        fields = parse_header(header, MessageType.PUB)
    except FleximqError:
        return None
    if fields.routing is not None or fields.topic is None:
        return None
    return fields.topic, fields.status
