"""Load in Rheos v2: every publish is acknowledged with 22 bytes, with a CRC-32."""

import socket
import struct
import zlib
from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.bench.rheos import RheosWire
from penstock.cli.bench.wire import CLIENT
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode

__all__ = ["Rheos2Wire"]


class Rheos2Wire(RheosWire):
    """Every publish is acknowledged with 22 bytes, and checked by CRC-32."""

    name = "rheos2"
    acknowledged_bytes = 22
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: 0xAC, 1: 0}
    trailer_bytes = 4

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        self.subscribe(peer, start)
        return 32 + len(self.topic.encode()) + len(value)

    def request(self, operation: OpCode, name: str, value: bytes = b"") -> bytes:
        """See RheosWire."""
        return rheos2.encode(rheos2.Event(CLIENT, operation, name.encode(), value))

    def code(self, answer: bytes) -> int:
        """See RheosWire."""
        return answer[1] if answer[18:] == struct.pack("<I", zlib.crc32(answer[:18])) else -1
