"""Load in fleximq: MessagePack headers, no acknowledgments."""

import socket
import time
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.cli.bench.wire import TOPIC, HandshakeFailed, Wire, not_let_in
from penstock.wire import fleximq

__all__ = ["FleximqWire"]

_HEADER_BYTES_MAX: Final = 65_536


class _JoinReply(msgspec.Struct):
    """The header of the reply to a JOIN; without a status it is a success."""

    status: int = 200


class FleximqWire(Wire):
    """MessagePack headers; a publish has no answer."""

    name = "fleximq"

    def __init__(self, topic: str = TOPIC) -> None:
        super().__init__(topic)
        self._number = 0

    def open_publisher(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """See Wire."""
        number = self._join(peer)
        return lambda value: self._publish(number, value)

    def open_subscriber(self, peer: socket.socket, value: bytes, *, start: str = "") -> int:
        """See Wire."""
        number = self._join(peer)
        topic = fleximq.Header(topic=self.topic + start)
        subscribe = fleximq.Message(fleximq.MessageType.SUB, number, topic, b"")
        # A SUB has no answer; a PING after it has one.
        alive = fleximq.Header(keepalive=fleximq.KeepAlive(1))
        ping = fleximq.encode(fleximq.Message(fleximq.MessageType.PING, number, alive, b""))
        answer = self.shake(peer, fleximq.encode(subscribe) + ping, len(ping))
        if answer[1] in {fleximq.MessageType.REP, fleximq.MessageType.NOTIF}:
            raise self.refused(f"a subscription to {self.topic}")
        return len(self._publish(number, value))

    def alive(self) -> bytes:
        """See Wire: a PONG has no answer, and counts as a keep-alive (section 3.7.3)."""
        header = fleximq.Header(keepalive=fleximq.KeepAlive(time.time_ns() // 1_000_000))
        pong = fleximq.Message(fleximq.MessageType.PONG, self._number, header, b"")
        return fleximq.encode(pong)

    def _join(self, peer: socket.socket) -> int:
        join = fleximq.Message(fleximq.MessageType.JOIN, 0, fleximq.Header(), b"")
        reply = self.shake(peer, fleximq.encode(join), 26)
        header_bytes = int.from_bytes(reply[22:26], "big")
        head = bytes((1, fleximq.MessageType.REP))
        if reply[:2] != head or any(reply[6:22]) or header_bytes > _HEADER_BYTES_MAX:
            raise self.not_spoken()
        tail = self.shake(peer, b"", header_bytes + 8)
        payload_bytes = int.from_bytes(tail[-8:], "big")
        try:
            header = msgspec.msgpack.decode(tail[:-8], type=_JoinReply) if header_bytes else None
        except msgspec.DecodeError:
            raise self.not_spoken() from None
        status = 200 if header is None else header.status
        if status in {401, 403}:
            raise not_let_in()
        if not 200 <= status < 300 or payload_bytes > _HEADER_BYTES_MAX:
            raise HandshakeFailed(f"refuses a client with status {status}", "see its log")
        self.shake(peer, b"", payload_bytes)
        self._number = int.from_bytes(reply[2:6], "big")
        return self._number

    def _publish(self, number: int, value: bytes) -> bytes:
        header = fleximq.Header(topic=self.topic)
        payload = fleximq.wrap_value(value)
        return fleximq.encode(fleximq.Message(fleximq.MessageType.PUB, number, header, payload))
