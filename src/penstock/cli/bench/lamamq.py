"""Load in LamaMQ: every push is answered with 5 bytes."""

import socket
from collections.abc import Callable, Mapping
from typing import ClassVar

from penstock.cli.bench.wire import Wire, not_let_in
from penstock.wire import lamamq

__all__ = ["LamamqWire"]


class LamamqWire(Wire):
    """Every push is answered with 5 bytes."""

    name = "lamamq"
    acknowledged_bytes = 5
    acknowledged_same: ClassVar[Mapping[int, int]] = {3: 7, 4: 0}

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        self._join(peer)
        return self._push

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        self._join(peer)
        answer = self.shake(peer, lamamq.encode(lamamq.Subscribe(1, self.topic + start)), 5)
        if answer != b"\x00\x00\x00\x01\x00":
            raise self.refused(f"a subscription to {self.topic}")
        return len(self._push(value))

    def _join(self, peer: socket.socket) -> None:
        offer = self.shake(peer, lamamq.encode(lamamq.Authentication("bench")), 4)
        if offer == bytes(4):  # an answer instead of an offer is an error
            raise not_let_in()
        if not offer[2:] <= bytes((1, 0)) <= offer[:2]:
            raise self.not_spoken()
        peer.sendall(lamamq.encode(lamamq.VersionChoice(1, 0)))

    def _push(self, value: bytes) -> bytes:
        kind = lamamq.PayloadType.BUFFER
        message = lamamq.Message(1_700_000_000, self.topic, (), kind, value)
        return lamamq.encode(lamamq.Push(7, message))
