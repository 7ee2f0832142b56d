"""State tables of herald's handshake, one per role.

A client may have both roles on one connection, with one handshake for each.
"""

import enum
from typing import Final

from penstock.wire.herald.packets import (
    Disconnect,
    Error,
    HandshakeAck,
    HandshakePub,
    HandshakeSub,
    Message,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
)
from penstock.wire.states import StateTable

__all__ = ["BROKER", "CLIENT", "BrokerState", "ClientState"]


class BrokerState(enum.Enum):
    """State of a client connection, on the broker."""

    AWAITING_HANDSHAKE = enum.auto()
    PUBLISHER = enum.auto()
    SUBSCRIBER = enum.auto()
    PUBLISHER_AND_SUBSCRIBER = enum.auto()
    CLOSED = enum.auto()


_AWAITING, _PUB, _SUB, _BOTH, _CLOSED = BrokerState

BROKER: Final = StateTable(
    {
        (_AWAITING, HandshakePub): _PUB,
        (_AWAITING, HandshakeSub): _SUB,
        (_AWAITING, Disconnect): _CLOSED,
        (_PUB, HandshakeSub): _BOTH,
        (_SUB, HandshakePub): _BOTH,
        **{(state, Publish): state for state in (_PUB, _BOTH)},
        **{
            (state, packet): state for state in (_SUB, _BOTH) for packet in (Subscribe, Unsubscribe)
        },
        **{(state, packet): state for state in (_PUB, _SUB, _BOTH) for packet in (Ping, Pong)},
        **{(state, Disconnect): _CLOSED for state in (_PUB, _SUB, _BOTH)},
    }
)
"""Packets the broker receives."""


class ClientState(enum.Enum):
    """State of a connection, on the client."""

    AWAITING_ACK = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


CLIENT: Final = StateTable(
    {
        (ClientState.AWAITING_ACK, HandshakeAck): ClientState.OPEN,
        (ClientState.AWAITING_ACK, Error): ClientState.AWAITING_ACK,
        (ClientState.AWAITING_ACK, Ping): ClientState.AWAITING_ACK,  # proof of a UDP address
        (ClientState.AWAITING_ACK, Disconnect): ClientState.CLOSED,
        (ClientState.OPEN, HandshakeAck): ClientState.OPEN,  # of the second role
        (ClientState.OPEN, Message): ClientState.OPEN,
        (ClientState.OPEN, Error): ClientState.OPEN,
        (ClientState.OPEN, Ping): ClientState.OPEN,
        (ClientState.OPEN, Pong): ClientState.OPEN,
        (ClientState.OPEN, Disconnect): ClientState.CLOSED,
    }
)
"""Packets the client receives."""
