"""Detection of the protocol from the first bytes of a connection.

The first byte tells which detection to ask; `Protocol.detection` refers to it. Bytes that can
belong to one protocol alone settle it, even if they are wrong there: its gateway answers in its own
words. With the five protocols that Penstock comes with:

    ┌─────────────────────┬──────────────────────────────────────────────────────────────────────┐
    │ first bytes         │ protocol                                                             │
    ├─────────────────────┼──────────────────────────────────────────────────────────────────────┤
    │ FE CA               │ herald, little-endian                                                │
    │ CA FE               │ herald, big-endian                                                   │
    │ 01                  │ fleximq: version 1                                                   │
    │ 00  u32             │ LamaMQ: authentication method 0, length of the identity name; the    │
    │                     │ byte order in which the length is plausible is the connection's      │
    │ FA  u32 …           │ Rheos: v1 or v2 is settled by the first packet                       │
    │ ?  00  00 00 00 00  │ fleximq: JOIN of another version, which is refused                   │
    │ anything else       │ unrecognised                                                         │
    └─────────────────────┴──────────────────────────────────────────────────────────────────────┘
"""

import functools
from collections.abc import Mapping
from typing import Final

from penstock.errors import UnrecognisedProtocol
from penstock.limits import DETECT_BYTES_MAX
from penstock.protocols import PROTOCOLS, Protocol, load
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection, unrecognised

__all__ = ["Detected", "conclude", "detect", "detect_order"]

_SHOWN_BYTES: Final = 22
"""First bytes that an error shows if they settled nothing."""


def detect(data: Buffer, *, bytes_max: int = DETECT_BYTES_MAX) -> Detected | None:
    """Return the protocol of a connection that starts with `data`, None if more bytes are needed.

    Once a prefix is settled, every longer one gives the same answer or the same error. Raise
    UnrecognisedProtocol as soon as no protocol can match, or if `bytes_max` bytes settle nothing;
    bytes beyond them are not looked at.
    """
    if len(data) > bytes_max:
        data = data[:bytes_max]
    detected = _detection(data).recognise(data) if data else None
    if detected is None and len(data) == bytes_max:
        raise unrecognised(data, _SHOWN_BYTES, f"{bytes_max} bytes settle no protocol")
    return detected


def detect_order(data: Buffer, protocol: Protocol) -> Detected | None:
    """Return a protocol with the byte order that the first bytes show, None if more are needed.

    If they are not of the protocol, the order is that of its specification.
    """
    detection: Detection = load(protocol.detection)
    if not data:
        return None
    if data[0] in detection.first_bytes:
        try:
            detected = detection.recognise(data)
        except UnrecognisedProtocol:
            pass
        else:
            if detected is None or detected.protocol is protocol:
                return detected
    return Detected(protocol, protocol.orders[0])


def conclude(data: Buffer, *, bytes_max: int = DETECT_BYTES_MAX) -> Detected | None:
    """Detect the protocol when no more bytes will follow `data`, as at the handshake deadline.

    Return None if `data` is too short for every protocol that it may belong to.
    """
    detected = detect(data, bytes_max=bytes_max)
    if detected is None and data:
        return _detection(data).conclude(data)
    return detected


def _detection(data: Buffer) -> Detection:
    found = _by_first_byte().get(data[0])
    if found is None:
        found = _of_other_bytes()
    if found is None:
        raise unrecognised(data, 1, "no protocol starts with this byte")
    return found


@functools.cache
def _of_other_bytes() -> Detection | None:
    return next((each for each in _by_first_byte().values() if each.takes_other_bytes), None)


@functools.cache
def _by_first_byte() -> Mapping[int, Detection]:
    detections: dict[int, Detection] = {}
    for protocol in PROTOCOLS:
        detection: Detection = load(protocol.detection)
        for byte in detection.first_bytes:
            if detections.setdefault(byte, detection) is not detection:
                raise ValueError(f"{protocol.label} starts with byte {byte:#04x}, which is taken")
    return detections
