"""Detection of the protocol from the first bytes of a connection.

The first byte tells which detection to ask; `Protocol.detection` refers to it. With the five
protocols that Penstock comes with:

    ┌─────────────────────┬──────────────────────────────────────────────────────────────────────┐
    │ first bytes         │ protocol                                                             │
    ├─────────────────────┼──────────────────────────────────────────────────────────────────────┤
    │ FE CA               │ herald, little-endian                                                │
    │ CA FE               │ herald, big-endian                                                   │
    │ 01 00  00 00 00 00  │ fleximq: version 1, JOIN, client id 0                                │
    │ 00  u32             │ LamaMQ: authentication method 0, length of the identity name; the    │
    │                     │ byte order in which the length is plausible is the connection's      │
    │ FA  u32 …           │ Rheos: v1 or v2 is settled by the first packet                       │
    │ anything else       │ unrecognised                                                         │
    └─────────────────────┴──────────────────────────────────────────────────────────────────────┘
"""

import functools
from collections.abc import Mapping
from typing import Final

from penstock.limits import DETECT_BYTES_MAX
from penstock.protocols import PROTOCOLS, load
from penstock.wire.decoder import Buffer
from penstock.wire.detection import Detected, Detection, unrecognised

__all__ = ["Detected", "conclude", "detect"]

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
        raise unrecognised(data, 1, "no protocol starts with this byte")
    return found


@functools.cache
def _by_first_byte() -> Mapping[int, Detection]:
    detections: dict[int, Detection] = {}
    for protocol in PROTOCOLS:
        detection: Detection = load(protocol.detection)
        for byte in detection.first_bytes:
            if detections.setdefault(byte, detection) is not detection:
                raise ValueError(f"{protocol.label} starts with byte {byte:#04x}, which is taken")
    return detections
