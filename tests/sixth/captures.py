"""Lines in captures: explained by `penstock decode`, and as rows in Spark."""

from typing import Final

from penstock.decode.layout import Data, Form, Layout
from penstock.decode.reading import Reading, Side
from penstock.spark.capture_roles.role import Captured, CapturedSide, Role
from tests.sixth.protocol import LINES
from tests.sixth.wire import WITH_VALUE, Decoder, Line

__all__ = ["READING", "lines_role"]

_OF_SERVERS: Final = (b"ok", b"err ", b"msg ", b"pong")


class _Side(Side):
    def layout(self, data: bytes) -> tuple[str, Layout]:
        size = data.find(b"\n") + 1 or len(data)
        words = data[:size].decode("ascii", "replace").split()
        layout: list[Data] = [Data("Line", size, Form.TEXT)]
        if words and words[0] in WITH_VALUE and words[-1].isdecimal():
            layout += [Data("Value", int(words[-1]), Form.NAME), Data("End", 1, Form.BYTES)]
        return f"{words[0] if words else 'empty'} line", tuple(layout)


READING: Final = Reading(
    sides=lambda order, alone: (_Side(Decoder(), order), _Side(Decoder(), order)),
    is_client=lambda data: not data.startswith(_OF_SERVERS),
    is_server=lambda data: data.startswith(_OF_SERVERS),
    order=lambda of_client, others: "big",
)


class _Role(Role):
    protocol = LINES
    has_kernel = False

    def record(self, packet: Line) -> Captured | None:
        if packet.word == "hello":
            self.sender = packet.rest[0].decode()
        if packet.word == "pub":
            return Captured(packet.rest[0].decode(), packet.value, self.sender)
        if packet.word == "msg":
            return Captured(packet.rest[0].decode(), packet.value, packet.rest[1].decode())
        return None


def lines_role(side: CapturedSide) -> Role:
    """Return how a side of a connection is read."""
    return _Role(Decoder(), side.context, side.order)
