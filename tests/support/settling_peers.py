"""Raw clients of all protocols that can tell when everything sent to them has arrived.

`settle` sends a question that the broker answers in order, and returns what came before the answer:
so a message that is not there was not delivered, and no test has to wait a while for nothing.
"""

import struct
from typing import NamedTuple

from penstock.conform.fleximq import encoding as fx
from penstock.conform.herald import encoding as herald
from penstock.conform.lamamq import encoding as lama
from penstock.conform.rheos.encoding import FAILED, RHEOS2, SUBSCRIBE, Rheos
from tests.support.live import Peer

NO_TOPIC = "nobody/creates/this"


class Closed(Exception):
    """The broker closed the connection."""


class Got(NamedTuple):
    """A message of another client; `how` is the kind of delivery, `topic` is empty if unknown."""

    how: str
    topic: str
    value: bytes


class SettlingPeer(Peer):
    """A raw connection that keeps what it is sent."""

    def take(self, size: int) -> bytes:
        try:
            data = self.receive(size)
        except ConnectionError:
            data = b""
        if len(data) < size:
            self.socket.close()
            raise Closed
        return data

    def put(self, data: bytes) -> None:
        try:
            self.send(data)
        except ConnectionError:
            self.socket.close()
            raise Closed from None

    def settle(self) -> tuple[list[Got], int]:
        """Everything that came, and how many refusals were among it."""
        raise NotImplementedError


class FleximqPeer(SettlingPeer):
    def __init__(self, address: tuple[str, int], *, token: str | None = None) -> None:
        super().__init__(address)
        self.statuses: list[int] = []
        self.frames: list[fx.Frame] = []
        header = {} if token is None else {"auth": {"type": "token", "token": token}}
        self.put(fx.frame(fx.JOIN, 0, header))
        self.joined = self._frame()
        self.number = self.joined.client_id
        self._pings = 0

    def _frame(self) -> fx.Frame:
        base = self.take(26)
        head = self.take(fx.header_length(base))
        size = self.take(8)
        return fx.parse(base + head + size + self.take(struct.unpack(">Q", size)[0]))

    def say(self, message_type: int, *fields: fx.Header, payload: bytes = b"") -> None:
        header: fx.Header = {}
        for field in fields:
            header |= field
        self.put(fx.frame(message_type, self.number, header, payload))

    def settle(self) -> tuple[list[Got], int]:
        """See the base class: `statuses` and `frames` have all answers and frames of this call."""
        self._pings += 1
        self.say(fx.PING, fx.keepalive(self._pings, interval=30))
        self.statuses, self.frames = [], []
        found = []
        while True:
            frame = self._frame()
            if frame.type == fx.PONG:
                return found, sum(status >= 300 for status in self.statuses)
            if frame.type == fx.PING:
                continue
            self.frames.append(frame)
            if frame.client_id == fx.BROKER:
                self.statuses.append(frame.header["status"])
                continue
            topic = frame.header.get("topic", "")
            if frame.type != fx.PUB and "routing" in frame.header:
                topic = frame.header["routing"][0]["path"]
            value = frame.value if frame.payload else b""
            found.append(
                Got(fx.NAMES[frame.type], topic, value if isinstance(value, bytes) else b"")
            )


class HeraldPeer(SettlingPeer):
    """A publisher and subscriber; `accepted` says whether the handshake was."""

    def __init__(self, address: tuple[str, int], handshake: bytes, topics: dict[int, str]) -> None:
        super().__init__(address)
        self._topics = topics
        self.put(handshake)
        opcode, body = self._frame()
        assert opcode == 3
        self.accepted = body[0] == 0

    def _frame(self) -> tuple[int, bytes]:
        magic, opcode, length = struct.unpack("<HBI", self.take(7))
        assert magic == 0xCAFE
        return opcode, self.take(length)

    def settle(self) -> tuple[list[Got], int]:
        self.put(herald.PING)
        found, refused = [], 0
        while True:
            opcode, body = self._frame()
            match opcode:
                case 0x21:
                    return found, refused
                case 0xFF:
                    refused += 1
                case 0x13:
                    found.append(Got("MESSAGE", self._topics[body[0]], body[9:]))
                case 0x04:
                    raise Closed


class LamamqPeer(SettlingPeer):
    def __init__(self, address: tuple[str, int], *, name: str, key: str | None = None) -> None:
        super().__init__(address)
        self.put(lama.authentication(name.encode(), None if key is None else key.encode()))
        if self.take(4) != lama.OFFER:
            self.socket.close()
            raise Closed
        self.put(lama.CHOICE)
        self._next = 0

    def ask(self, request: bytes) -> None:
        """Send a request whose id is replaced by the next one."""
        self._next += 1
        self.put(struct.pack(">I", self._next) + request[4:])

    def settle(self) -> tuple[list[Got], int]:
        self.ask(lama.unsubscribe(0, NO_TOPIC.encode()))
        last = self._next
        found, refused = [], 0
        while True:
            identifier, kind = struct.unpack(">IB", self.take(5))
            if identifier & lama.BROKER_BIT:
                found.append(self._forward())
                continue
            if kind:
                self._counted()
            if identifier == last:
                return found, refused
            refused += kind != 0

    def until_closed(self) -> list[Got]:
        """All hook calls and forwards, until the broker closes."""
        found = []
        try:
            while True:
                self.take(5)
                found.append(self._forward())
        except Closed:
            return found

    def _counted(self) -> bytes:
        return self.take(struct.unpack(">I", self.take(4))[0])

    def _forward(self) -> Got:
        self.take(4)
        topic = self._counted().decode()
        pairs = [
            (self._counted(), self._counted()) for _ in range(struct.unpack(">H", self.take(2))[0])
        ]
        value = self._counted() if self.take(1) != b"\x00" else b""
        called = bool(pairs) and pairs[0][0] == b"penstock-hook"
        return Got("HOOK" if called else "FORWARD", topic, value)


class RheosPeer(SettlingPeer):
    def __init__(self, address: tuple[str, int], rheos: Rheos = RHEOS2) -> None:
        super().__init__(address)
        self.rheos = rheos
        self._asked = 0

    def ask(self, opcode: int, name: str, payload: bytes = b"") -> None:
        self._asked += 1
        self.put(self.rheos.request(opcode, name.encode(), payload))

    def settle(self) -> tuple[list[Got], int]:
        self.ask(SUBSCRIBE, NO_TOPIC)
        found, refused = [], 0
        while self._asked:
            first = self.take(1)
            if first == b"\xac":
                rest = self.take(self.rheos.ack_bytes - 1)
                self._asked -= 1
                refused += (rest[16] if self.rheos.version == 1 else rest[0]) == FAILED
                continue
            size = struct.unpack("<I", self.take(20)[:4])[0]
            if self.rheos.version == 1:
                found.append(Got("RESPONSE", "", self.take(size)))
                continue
            body = self.take(size + 5)[1:-4]
            name_bytes, _ = struct.unpack_from("<HI", body)
            name = body[6 : 6 + name_bytes].decode()
            found.append(Got("EVENT", name, body[6 + name_bytes :]))
        return found, refused - 1  # the last question is always refused
