"""A broker without sockets over a log that remembers, and connections to it in any protocol."""

import re
import struct
from collections.abc import Callable
from typing import Any

from penstock.core.broker import Broker
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog
from tests.support.rheos_bytes import CREATE, RHEOS1, RHEOS2, SUBSCRIBE, Rheos

MARK = re.compile(rb"<(\d+)>")


class History:
    """The broker. What is published is `<0>`, `<1>` and so on."""

    def __init__(self, options: GatewayOptions | None = None) -> None:
        self.log = KeptLog()
        self.clock = FakeClock()
        self.broker = Broker(log=self.log, reader=self.log, clock=self.clock)
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.options = options or GatewayOptions()
        self.count = 0
        self._publisher = LamaLine(self)

    def publish(self, *topics: str) -> None:
        """One message to each topic, kept and delivered."""
        for topic in topics:
            mark = b"<%d>" % self.count
            self._publisher.send(lama.push(self.count + 1, topic.encode(), mark))
            self.count += 1
            self.log.commit()
            self.settle()

    def settle(self) -> None:
        """All that can be read is."""
        self.log.commit()
        self.log.answer_all()


class Line:
    """One connection: how a protocol subscribes, and how it says yes and no."""

    hello = b""

    def __init__(self, history: History, options: GatewayOptions | None = None) -> None:
        self.history = history
        self.link = RecordingLink()
        self.link.handler = handler_for(history.broker, self.link, options or history.options)
        self.open()

    def open(self) -> None:
        """Shake hands."""

    def send(self, data: bytes) -> None:
        assert self.link.handler.received(memoryview(data)) == len(data)

    def marks(self) -> list[int]:
        """The messages that have come since, in their order."""
        self.history.settle()
        return [int(mark) for mark in MARK.findall(self.link.read())]

    def subscribe(self, text: str) -> bool:
        """Subscribe, and tell whether that was granted. What is delivered stays to be read."""
        raise NotImplementedError

    def unsubscribe(self, text: str) -> None:
        raise NotImplementedError

    def _answered(self, request: bytes, yes: bytes, no: bytes) -> bool:
        """Make a request whose answer starts with one of two; keep what else there is."""
        assert self.link.read() == b""
        self.send(request)
        self.history.log.commit()
        answer = self.link.read()
        assert answer.startswith((yes, no)), answer.hex(" ")
        return answer.startswith(yes)


class RheosLine(Line):
    rheos: Rheos

    def subscribe(self, text: str) -> bool:
        starts = [b"\xac" + bytes([code]) for code in range(2)]
        name = text.encode()
        if self.rheos.version == 2:
            return self._answered(self.rheos.request(SUBSCRIBE, name), *starts)
        assert self.link.read() == b""
        self.send(self.rheos.request(SUBSCRIBE, name))
        self.history.log.commit()
        answer = self.link.read()
        assert (answer[0], len(answer)) == (0xAC, 18)
        return answer[17] == 0

    def create(self, name: str) -> None:
        self.send(self.rheos.request(CREATE, name.encode()))
        self.history.log.commit()
        self.link.read()


class Rheos1Line(RheosLine):
    rheos = RHEOS1


class Rheos2Line(RheosLine):
    rheos = RHEOS2


class FleximqLine(Line):
    def open(self) -> None:
        self.send(fx.frame(fx.JOIN, 0))
        self.number = fx.parse(self.link.read()).client_id

    def subscribe(self, text: str) -> bool:
        assert self.link.read() == b""
        self.send(fx.frame(fx.SUB, self.number, fx.topic(text)))
        answer = self.link.read()
        if not answer:
            return True
        refusal = fx.parse(answer)
        assert (refusal.type, refusal.header["status"]) == (fx.NOTIF, 603)
        assert isinstance(refusal.value, str)
        return False

    def unsubscribe(self, text: str) -> None:
        self.send(fx.frame(fx.UNSUB, self.number, fx.topic(text)))
        assert self.link.read() == b""


class LamaLine(Line):
    def open(self) -> None:
        self.send(lama.authentication(b"somebody"))
        assert self.link.read() == lama.OFFER
        self.send(lama.CHOICE)

    def subscribe(self, text: str) -> bool:
        request = lama.subscribe(77, text.encode())
        no = lama.header(77, lama.BAD_REQUEST)
        return self._answered(request, lama.answer(77), no)

    def unsubscribe(self, text: str) -> None:
        assert self._answered(lama.unsubscribe(78, text.encode()), lama.answer(78), b"\xff")


class HeraldLine(Line):
    """A subscriber that goes by a name."""

    def __init__(
        self,
        history: History,
        options: GatewayOptions | None = None,
        *,
        name: bytes = b"s",
        channels: bytes = b"",
    ) -> None:
        self.name = name
        self.channels = channels
        super().__init__(history, options)

    def open(self) -> None:
        self.send(herald.handshake_sub(self.channels, self.name))

    def codes(self) -> list[int]:
        """The errors that have come, where nothing else has but an acknowledgment."""
        data = self.link.read()
        found = []
        while data:
            opcode, size = struct.unpack_from("<BI", data, 2)
            assert opcode in {0x03, 0xFF}
            if opcode == 0xFF:
                found.append(data[7])
            data = data[7 + size :]
        return found


NAMED: list[Callable[..., Any]] = [Rheos1Line, Rheos2Line, FleximqLine, LamaLine]
