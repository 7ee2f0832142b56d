"""Detections: how the first bytes of a protocol's connections are recognised."""

import dataclasses
from collections.abc import Callable

from penstock.errors import UnrecognisedProtocol
from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.wire.decoder import Buffer

__all__ = ["Detected", "Detection", "by_magic", "unrecognised"]


@dataclasses.dataclass(frozen=True, slots=True)
class Detected:
    """The protocol of a connection and the byte order of its integers."""

    protocol: Protocol
    order: ByteOrder


@dataclasses.dataclass(frozen=True, slots=True)
class Detection:
    """How connections that start with one of `first_bytes` are recognised.

    `recognise` gets at least one byte. It returns the protocol, None if it needs more bytes, or
    raises UnrecognisedProtocol; every longer prefix gives the same. `conclude` is asked when
    nothing follows: None if the bytes are only the start of something. One detection may take
    other bytes: it is asked about first bytes of no protocol.
    Protocols that share their first bytes share a detection.
    """

    first_bytes: bytes
    recognise: Callable[[Buffer], Detected | None]
    conclude: Callable[[Buffer], Detected | None] = lambda data: None  # noqa: ARG005
    takes_other_bytes: bool = False


def by_magic(data: Buffer, magic: bytes, detected: Detected) -> Detected | None:
    """Settle a protocol whose connections start with `magic`, of which the first byte is there."""
    found = data[: len(magic)]
    for size in range(2, len(found) + 1):
        if found[size - 1] != magic[size - 1]:
            raise unrecognised(data, size, f"not a {detected.protocol.label} handshake")
    return detected if len(found) == len(magic) else None


def unrecognised(data: Buffer, size: int, reason: str) -> UnrecognisedProtocol:
    """Return an error that shows as many bytes as it took, so that no cut changes the error."""
    return UnrecognisedProtocol(bytes(data[:size]), reason)
