"""herald, with both roles on one connection.

The connection starts as a subscriber without channels. The first publish adds the publisher's role
with its channel. herald does not answer SUBSCRIBE and UNSUBSCRIBE, it only reports their errors.
Each is sent between two PINGs; an ERROR between the two PONGs is its answer (see `pongs`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from penstock import positions
from penstock.client.errors import Refused
from penstock.client.events import Acknowledged, Delivered, Ended, Event, Failed, Ready
from penstock.client.options import Credentials
from penstock.client.sessions.base import NO_EXTRAS, Extras, Session, check_sizes, session_name
from penstock.client.sessions.pongs import Pongs
from penstock.client.topics import Topic, channel_of, channel_topic, without_replay
from penstock.client.values import Delivery
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD, HERALD_PAYLOAD_BYTES_MAX
from penstock.wire import herald
from penstock.wire.herald.encoder import HEADER
from penstock.wire.herald.packets import MAGIC

__all__ = ["HeraldSession"]

_CLIENT_ID_BYTES_MAX: Final = 255
_HEADER: Final = HEADER["little"]
_TOPICS: Final = tuple(channel_topic(channel) for channel in range(256))


class HeraldSession(Session):
    """See the base class; `name` is the client id."""

    protocol: ClassVar[Protocol] = HERALD

    def __init__(self, name: str) -> None:
        super().__init__()
        self.decoder = herald.Decoder()
        self._name = name
        self._state = herald.ClientState.AWAITING_ACK
        self._publishes = False
        self._roles: deque[int | None] = deque()  # tickets of the awaited HANDSHAKE_ACKs
        self._pongs = Pongs()
        self._channels = b""
        self._start = ""

    def restoring(self, subscriptions: Iterable[str]) -> None:
        """See the base class: the handshake says where channels begin, SUBSCRIBE cannot."""
        starts = [split for text in subscriptions if (split := text.rpartition("@"))[1]]
        if starts:
            self._channels = bytes(sorted({channel_of(name) for name, _, _ in starts}))
            self._start = "," + min(start for _, _, start in starts)

    def start(self) -> None:
        """See the base class; ask for positions."""
        self._roles.append(None)
        asking = f"{self._name}@{positions.ASK_NAME}{self._start}"
        if len(asking.encode()) > _CLIENT_ID_BYTES_MAX:
            self._send(herald.HandshakeSub(b"", self._name))
        else:
            self._send(herald.HandshakeSub(self._channels, asking))

    def canonical(self, topic: Topic) -> str:
        """See the base class."""
        return _TOPICS[channel_of(topic)]

    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """See the base class; only the first publish of a connection is answered."""
        channel = channel_of(topic)
        self._check_publish(topic, extras)
        check_sizes(values, HERALD_PAYLOAD_BYTES_MAX - 9)  # its MESSAGE has a timestamp
        pack, opcode, number = _HEADER.pack, herald.OpCode.PUBLISH, bytes((channel,))
        parts: list[bytes] = []
        for value in values:
            parts += pack(MAGIC, opcode, len(value) + 1), number, value
        tickets = range(0)
        if not self._publishes:
            self._send(herald.HandshakePub(channel, self._name))
            self._publishes = True
            tickets = self._tickets(1)
            self._roles.extend(tickets)
        self._out += parts
        return tickets

    def subscribe(self, topic: str) -> int:
        """See the base class."""
        return self._bracketed(herald.Subscribe(channel_of(without_replay(topic))))

    def unsubscribe(self, topic: str) -> int:
        """See the base class."""
        return self._bracketed(herald.Unsubscribe(channel_of(topic)))

    def ping(self) -> int:
        """See the base class."""
        ticket = self._ticket()
        self._pongs.expect(ticket)
        self._send(herald.Ping())
        return ticket

    def goodbye(self) -> None:
        """See the base class."""
        self._send(herald.Disconnect())

    def _bracketed(self, packet: herald.Packet) -> int:
        parts = [herald.encode(part) for part in (herald.Ping(), packet, herald.Ping())]
        ticket = self._ticket()
        self._pongs.expect_around(ticket)
        self._out += parts
        return ticket

    def _send(self, packet: herald.Packet) -> None:
        self._out.append(herald.encode(packet))

    def _received(self, packet: herald.Packet) -> Event | None:
        if type(packet) is not herald.Message or self._state is not herald.ClientState.OPEN:
            self._state = herald.CLIENT.advance(self._state, packet)
        match packet:
            case herald.Message(_, positions.TIMESTAMP, message):
                return self._positions(message)
            case herald.Message(channel, timestamp, message):
                place = next(self._places, None)
                return Delivered(
                    Delivery(
                        _TOPICS[channel],
                        message,
                        packet,
                        sender=None if place is None else place.sender,
                        timestamp_us=timestamp,
                        place=place,
                    )
                )
            case herald.Pong():
                return self._pongs.received()
            case herald.HandshakeAck(session_id, error):
                return self._role_answered(session_id, error)
            case herald.Error(error):
                return self._pongs.failed(_refused(error))
            case herald.Ping():
                self._send(herald.Pong())
                return None
            case _:
                return Ended()

    def _role_answered(self, session_id: int, error: herald.ErrorCode | None) -> Event | None:
        if not self._roles:
            return None
        ticket = self._roles.popleft()
        if error is not None:
            return Failed(ticket, _refused(error))
        return Ready(session_id) if ticket is None else Acknowledged(ticket)


def _refused(error: herald.ErrorCode) -> Refused:
    return Refused(HERALD, error, error.name)


def herald_sessions(credentials: Credentials) -> Callable[[], Session]:
    """Return a factory of the sessions of a client; all have the same name."""
    name = session_name(credentials)
    return lambda: HeraldSession(name)
