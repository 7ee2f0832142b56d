"""State tables of the join handshake of fleximq, one per role.

All messages have one class, so the tables are keyed by message type. A REP that reports failure
keeps the state of a client, since it may JOIN again (section 4.2, step 5). No message closes a
connection; in CLOSED no message is legal.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from penstock.errors import OutOfSequence
from penstock.wire.fleximq.packets import Message, MessageType, is_success

__all__ = ["BROKER", "CLIENT", "BrokerState", "ClientState", "Failure", "MessageTable"]

State = TypeVar("State", bound=enum.Enum)


class Failure(enum.Enum):
    """Table key of a message that reports failure."""

    REP = enum.auto()


Event: TypeAlias = MessageType | Failure


class MessageTable(Generic[State]):
    """The legal transitions of one role: (state, received message) to state."""

    def __init__(self, moves: Mapping[tuple[State, Event], State]) -> None:
        self.moves = MappingProxyType(dict(moves))

    def advance(self, state: State, message: Message) -> State:
        """Return the state after `message`; raise OutOfSequence and change nothing if illegal."""
        event: Event = message.type
        if event is MessageType.REP and not is_success(message.header.status):
            event = Failure.REP
        try:
            return self.moves[state, event]
        except KeyError:
            raise OutOfSequence(state.name, message.type.name) from None


class BrokerState(enum.Enum):
    """State of a client connection, on the broker."""

    AWAITING_JOIN = enum.auto()
    JOINED = enum.auto()
    CLOSED = enum.auto()


BROKER: Final = MessageTable(
    {
        (BrokerState.AWAITING_JOIN, MessageType.JOIN): BrokerState.JOINED,
        **{
            (BrokerState.JOINED, event): BrokerState.JOINED
            for event in (*MessageType, Failure.REP)
            if event is not MessageType.JOIN
        },
    }
)
"""Messages the broker receives. A client it spawned over STDIO starts as JOINED (section 6.4)."""


class ClientState(enum.Enum):
    """State of a connection, on the client."""

    AWAITING_REPLY = enum.auto()
    JOINED = enum.auto()
    CLOSED = enum.auto()


CLIENT: Final = MessageTable(
    {
        (ClientState.AWAITING_REPLY, MessageType.REP): ClientState.JOINED,
        **{
            (ClientState.AWAITING_REPLY, event): ClientState.AWAITING_REPLY
            for event in (Failure.REP, MessageType.NOTIF, MessageType.PING)
        },
        **{
            (ClientState.JOINED, event): ClientState.JOINED
            for event in (*MessageType, Failure.REP)
            if event not in (MessageType.JOIN, MessageType.SUB, MessageType.UNSUB)
        },
    }
)
"""Messages the client receives. Before the reply to JOIN: the reply, errors and keep-alive. Then:
all except those for the broker only."""
