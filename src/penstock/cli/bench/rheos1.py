"""Load in Rheos v1: every publish is acknowledged with 18 bytes."""

import socket
from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.bench.rheos import RheosWire
from penstock.cli.bench.wire import CLIENT
from penstock.wire import rheos1
from penstock.wire.rheos import OpCode

__all__ = ["Rheos1Wire"]


class Rheos1Wire(RheosWire):
    """Every publish is acknowledged with 18 bytes."""

    name = "rheos1"
    acknowledged_bytes = 18
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: 0xAC, 17: 0}

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        self.subscribe(peer, start)
        return 21 + len(value)

    def request(self, operation: OpCode, name: str, value: bytes = b"") -> bytes:
        """See RheosWire."""
        return rheos1.encode(rheos1.Request(CLIENT, operation, name.encode(), value))

    def code(self, answer: bytes) -> int:
        """See RheosWire."""
        return answer[17]
