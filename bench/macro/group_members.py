"""Members of consumer groups as load: each counts its deliveries and acknowledges them.

A member gets the bytes of its connection as they arrive and answers many deliveries with one write,
for all systems alike. Deliveries of Penstock and of core NATS have a fixed size, so that counting
them costs nothing; those of JetStream and Redis carry ids that must be found.
"""

import itertools
import json
import re
import socket
from abc import ABC, abstractmethod
from typing import Final

from bench.macro.wires import Nats, Wire, exchange, redis_command
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import ClientId, Header, MessageType, Routing

__all__ = ["GROUP", "STREAM", "FixedMember", "JetstreamMember", "Member", "NatsMember"]
__all__ += ["RedisMember", "penstock_member"]

GROUP: Final = "bench"
STREAM: Final = b"bench"
PULLED: Final = 1024
"""Messages that a member of JetStream or Redis asks for at a time."""
_FLEXIMQ_SPAN_MAX: Final = 1000


class Member(ABC):
    """One connection in a group."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer

    @abstractmethod
    def received(self, data: bytes) -> int:
        """Take bytes that arrived, and acknowledge what is whole; return how many deliveries."""


class FixedMember(Member):
    """Deliveries of one size. Its system acknowledges the bytes, or nothing does."""

    def __init__(self, peer: socket.socket, size: int) -> None:
        super().__init__(peer)
        self.size = size
        self._rest = 0

    def received(self, data: bytes) -> int:
        count, self._rest = divmod(self._rest + len(data), self.size)
        return count


class LamamqMember(Member):
    """Answers each Forward: its id, and a zero."""

    def __init__(self, peer: socket.socket, size: int) -> None:
        super().__init__(peer)
        self.size = size
        self._rest = b""

    def received(self, data: bytes) -> int:
        whole = self._rest + data
        count = len(whole) // self.size
        end = count * self.size
        answers = bytearray(5 * count)
        for place in range(4):
            answers[place::5] = whole[place : end : self.size]
        self.peer.sendall(answers)
        self._rest = whole[end:]
        return count


class FleximqMember(FixedMember):
    """Acknowledges runs of deliveries by their numbers."""

    def __init__(self, peer: socket.socket, size: int, number: int) -> None:
        super().__init__(peer, size)
        self._number = number
        self._acknowledged = 0

    def received(self, data: bytes) -> int:
        count = super().received(data)
        header = Header(routing=(Routing(ClientId.BROKER, "/ack"),))
        end = self._acknowledged + count
        while self._acknowledged < end:
            first = self._acknowledged + 1
            self._acknowledged = min(end, self._acknowledged + _FLEXIMQ_SPAN_MAX)
            payload = messagepack.encode([first, self._acknowledged])
            message = fleximq.Message(MessageType.NOTIF, self._number, header, payload)
            self.peer.sendall(fleximq.encode(message))
        return count


def penstock_member(wire: Wire, peer: socket.socket, value: bytes, *, start: str) -> Member:
    """Subscribe; `start` joins a group, and without it the subscription is a plain one."""
    size = wire.open_subscriber(peer, value, start=start)
    if start and wire.name == "lamamq":
        return LamamqMember(peer, size)
    if start and wire.name == "fleximq":
        # The client's number is in its keep-alive; the wire keeps it for one connection only.
        return FleximqMember(peer, size, int.from_bytes(wire.alive()[2:6], "big"))
    return FixedMember(peer, size)


class NatsMember(FixedMember):
    """A member of a queue group of core NATS: nothing is acknowledged, nothing is kept."""

    def __init__(self, peer: socket.socket, value: bytes) -> None:
        wire = Nats()
        wire.connect(peer)
        exchange(peer, b"SUB %b bench 1\r\nPING\r\n" % wire.subject, len(b"PONG\r\n"))
        super().__init__(peer, len(b"MSG %b 1 %d\r\n%b\r\n" % (wire.subject, len(value), value)))


class JetstreamMember(Member):
    """A member of a durable pull consumer: acknowledges each message, without waiting."""

    _REPLY: Final = re.compile(rb"\$JS\.ACK\.\S+")
    _numbers = itertools.count()

    def __init__(self, peer: socket.socket, value: bytes) -> None:
        super().__init__(peer)
        wire = Nats()
        wire.connect(peer)
        self._inbox = b"inbox.%d" % next(self._numbers)
        exchange(peer, b"SUB %b 1\r\nPING\r\n" % self._inbox, len(b"PONG\r\n"))
        self._tail = len(b" %d\r\n%b\r\n" % (len(value), value))
        self._rest = b""
        self._pulled = 0
        self._pull()

    def _pull(self) -> None:
        request = json.dumps({"batch": PULLED}).encode()
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (STREAM, GROUP.encode())
        self.peer.sendall(b"PUB %b %b %d\r\n%b\r\n" % (subject, self._inbox, len(request), request))
        self._pulled += PULLED

    def received(self, data: bytes) -> int:
        whole = self._rest + data
        end = 0
        answers = []
        for found in self._REPLY.finditer(whole):
            if found.end() + self._tail > len(whole):
                break
            end = found.end() + self._tail
            answers.append(b"PUB %b 0\r\n\r\n" % found[0])
        if not end and (b"-ERR" in whole or b"NATS/1.0 4" in whole):
            raise SystemExit(f"JetStream refused a pull: {whole[:200]!r}")
        self._rest = whole[end:]
        if answers:
            self.peer.sendall(b"".join(answers))
        self._pulled -= len(answers)
        if self._pulled <= PULLED // 2:
            self._pull()
        return len(answers)


class RedisMember(Member):
    """A member of a consumer group of a Redis stream: acknowledges each answer's entries."""

    _ENTRY: Final = re.compile(rb"\r\n(\d{10,16}-\d+)\r\n")
    _COUNT: Final = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n\w+\r\n\*(\d+)\r\n")
    _HEAD_BYTES_MIN: Final = len(b"*2\r\n$15\r\n1700000000000-0\r\n")
    _numbers = itertools.count()

    def __init__(self, peer: socket.socket, value: bytes) -> None:
        super().__init__(peer)
        name = b"member-%d" % next(self._numbers)
        self._read = redis_command(
            b"XREADGROUP", b"GROUP", GROUP.encode(), name, b"COUNT", b"%d" % PULLED,
            b"BLOCK", b"0", b"STREAMS", STREAM, b">",
        )  # fmt: skip
        self._tail = len(b"*2\r\n$1\r\nv\r\n$%d\r\n%b\r\n" % (len(value), value))
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = 0
        peer.sendall(self._read)

    def received(self, data: bytes) -> int:
        # An answer has up to PULLED entries: look at it when it can be whole.
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return 0
        whole = b"".join(self._pieces)
        self._pieces = [whole]
        head = self._COUNT.search(whole)
        if head is None:
            if b"-" in whole[:1] or b"\n-" in whole:
                raise SystemExit(f"Redis refused a command: {whole[:200]!r}")
            return 0
        count = int(head[1])
        ids = [found[1] for found in self._ENTRY.finditer(whole, head.end() - 2)]
        self._wanted = head.end() + count * (self._HEAD_BYTES_MIN + self._tail)
        if len(ids) < count or len(whole) < self._end(whole, ids[-1]):
            return 0
        self._pieces, self._size, self._wanted = [], 0, 0
        done = redis_command(b"XACK", STREAM, GROUP.encode(), *ids)
        self.peer.sendall(done + self._read)
        return count

    def _end(self, whole: bytes, last: bytes) -> int:
        return whole.rindex(b"\r\n%b\r\n" % last) + 2 + len(last) + 2 + self._tail
