"""Lines in the client library: every request is answered in order."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from penstock.client.errors import Refused
from penstock.client.events import Acknowledged, Delivered, Event, Failed, Ready
from penstock.client.options import Credentials
from penstock.client.sessions.base import NO_EXTRAS, Extras, Session, session_name
from penstock.client.values import Delivery
from penstock.protocols import Protocol
from tests.sixth.protocol import LINES
from tests.sixth.wire import Decoder, Line, encode

__all__ = ["lines_sessions"]


class LinesSession(Session):
    """One connection."""

    protocol: ClassVar[Protocol] = LINES
    pings: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.decoder = Decoder()
        self._name = name
        self._awaited: deque[int] = deque()

    def start(self) -> None:
        """See the base class."""
        self._ask(0, "hello", self._name)

    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """See the base class."""
        self._check_publish(topic, extras)
        tickets = self._tickets(len(values))
        self._awaited += tickets
        self._out += (encode("pub", topic.encode(), value=value) for value in values)
        return tickets

    def subscribe(self, topic: str) -> int:
        """See the base class."""
        return self._ask(self._ticket(), "sub", topic)

    def unsubscribe(self, topic: str) -> int:
        """See the base class."""
        return self._ask(self._ticket(), "unsub", topic)

    def ping(self) -> int:
        """See the base class."""
        return self._ask(self._ticket(), "ping")

    def _ask(self, ticket: int, word: str, *rest: str) -> int:
        self._awaited.append(ticket)
        self._out.append(encode(word, *(each.encode() for each in rest)))
        return ticket

    def _received(self, packet: Line) -> Event | None:
        if packet.word == "msg":
            topic, sender = packet.rest
            return Delivered(Delivery(topic.decode(), packet.value, packet, sender=int(sender)))
        ticket = self._awaited.popleft()
        if packet.word == "err":
            error = Refused(LINES, 1, packet.rest[0].decode())
            return Failed(ticket or None, error)
        return Acknowledged(ticket) if ticket else Ready(None)


def lines_sessions(credentials: Credentials) -> Callable[[], Session]:
    """Return what makes the session of each connection of a client."""
    name = session_name(credentials)
    return lambda: LinesSession(name)
