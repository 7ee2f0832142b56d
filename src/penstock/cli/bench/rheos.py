"""The part of the load that both versions of Rheos share."""

import socket
from abc import abstractmethod
from collections.abc import Callable

from penstock.cli.bench.wire import Wire, exchange, not_let_in
from penstock.wire.rheos import AckCode, OpCode

__all__ = ["RheosWire"]


class RheosWire(Wire):
    """Both versions of Rheos. There is no handshake: the first request may be refused."""

    def prepare(self, peer: socket.socket) -> None:
        """See Wire."""
        create = self.request(OpCode.CREATE, self.topic)
        if not self._granted(peer, create):
            try:  # if the topic exists, the request fails and the connection stays open
                exchange(peer, create, self.acknowledged_bytes)
            except ConnectionError:
                raise not_let_in() from None

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:  # noqa: ARG002
        """See Wire."""
        return lambda value: self.request(OpCode.PUBLISH, self.topic, value)

    def subscribe(self, peer: socket.socket, start: str) -> None:
        """Subscribe to the topic."""
        if not self._granted(peer, self.request(OpCode.SUBSCRIBE, self.topic + start)):
            raise self.refused(f"a subscription to {self.topic}")

    def _granted(self, peer: socket.socket, request: bytes) -> bool:
        """Send a request; return whether it succeeded."""
        answer = self.shake(peer, request, self.acknowledged_bytes)
        code = self.code(answer)
        if answer[0] != self.acknowledged_same[0] or code not in set(AckCode):
            raise self.not_spoken()
        return code == AckCode.SUCCESS

    @abstractmethod
    def request(self, operation: OpCode, name: str, value: bytes = b"") -> bytes:
        """Return a request."""

    @abstractmethod
    def code(self, answer: bytes) -> int:
        """Return the code of an acknowledgment, -1 if it is not one."""
