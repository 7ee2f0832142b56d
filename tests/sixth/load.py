"""Lines as a load generator needs it."""

import socket
from collections.abc import Callable, Mapping
from typing import ClassVar

from penstock.cli.bench.wire import Wire
from tests.sixth.wire import encode

__all__ = ["LinesWire"]


class LinesWire(Wire):
    """Every publish is answered with 3 bytes."""

    name = "lines"
    acknowledged_bytes = 3
    acknowledged_same: ClassVar[Mapping[int, int]] = {0: ord("o"), 1: ord("k"), 2: ord("\n")}
    trailer_bytes = 1

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        self.shake(peer, encode("hello", b"bench"), 3)
        return lambda value: encode("pub", self.topic.encode(), value=value)

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire: the number of a client has four digits."""
        self.shake(peer, encode("hello", b"bench"), 3)
        self.shake(peer, encode("sub", (self.topic + start).encode()), 3)
        return len(encode("msg", self.topic.encode(), b"1000", value=value))
