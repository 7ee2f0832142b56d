"""A fleximq client in raw bytes, for the cases of this folder."""

import itertools
from typing import Any, Self

from penstock.conform.fleximq import encoding as fx
from penstock.conform.fleximq.encoding import Frame, frame
from tests.support.live import Peer


class Client(Peer):
    """A peer that has joined; `number` is the id the broker gave it."""

    _stamps = itertools.count(1_700_000_000_000)

    def __init__(self, address: tuple[str, int], *, join: bool = True) -> None:
        super().__init__(address)
        self.number = 0
        if join:
            self.send(frame(fx.JOIN, 0))
            reply = self.frame()
            assert reply.type == fx.REP
            assert reply.header == {"status": 200}
            self.number = reply.client_id

    def __enter__(self) -> Self:
        return self

    def frame_bytes(self) -> bytes:
        """The bytes of the next frame."""
        base = self.receive(26)
        assert len(base) == 26, f"expected a frame, got {base.hex(' ') or 'the end'}"
        rest = self.receive(fx.header_length(base) + 8)
        return base + rest + self.receive(int.from_bytes(rest[-8:], "big"))

    def frame(self) -> Frame:
        """The next frame."""
        return fx.parse(self.frame_bytes())

    def say(
        self, message_type: int, *fields: dict[str, Any], payload: bytes = b"", reserved: int = 0
    ) -> bytes:
        """Send a message in this client's own name; return its bytes."""
        header = {key: value for field in fields for key, value in field.items()}
        data = frame(
            message_type, self.number, header, payload, reserved=bytes(15) + bytes([reserved])
        )
        self.send(data)
        return data

    def settle(self) -> None:
        """All that was sent before has had its effect, and nothing is left to read.

        The broker works through a connection in order: its PONG comes behind everything.
        """
        stamp = next(self._stamps)
        self.say(fx.PING, fx.keepalive(stamp))
        found = self.frame()
        assert found == Frame(fx.PONG, fx.BROKER, fx.keepalive(stamp), b""), found

    def subscribe(self, *names: str) -> None:
        for name in names:
            self.say(fx.SUB, fx.topic(name))
        self.settle()

    def expect_notice(self, code: int) -> str:
        """The next frame is the broker's NOTIF with this status; return its text."""
        found = self.frame()
        assert (found.type, found.client_id) == (fx.NOTIF, fx.BROKER), found
        assert found.header == fx.routing((self.number, "/errors")) | fx.status(code), found
        text = found.value
        assert isinstance(text, str)
        assert text
        return text

    def expect_refusal(self, code: int, identifier: str) -> str:
        """The next frame is the broker's REP with this status and id; return its text."""
        found = self.frame()
        assert (found.type, found.client_id) == (fx.REP, fx.BROKER), found
        expected = fx.routing((self.number, "")) | fx.correlation(identifier) | fx.status(code)
        assert found.header == expected, found
        text = found.value
        assert isinstance(text, str)
        assert text
        return text
