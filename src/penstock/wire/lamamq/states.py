"""State tables of the handshake of LamaMQ, one per role."""

import enum
from typing import Final

from penstock.wire.lamamq.packets import (
    Answer,
    Authentication,
    Forward,
    Push,
    Register,
    Subscribe,
    Unregister,
    Unsubscribe,
    VersionChoice,
    VersionOffer,
)
from penstock.wire.states import StateTable

__all__ = ["BROKER", "CLIENT", "BrokerState", "ClientState"]


class BrokerState(enum.Enum):
    """State of a client connection, on the broker."""

    AWAITING_AUTHENTICATION = enum.auto()
    AWAITING_VERSION_CHOICE = enum.auto()
    OPEN = enum.auto()


BROKER: Final = StateTable(
    {
        (BrokerState.AWAITING_AUTHENTICATION, Authentication): BrokerState.AWAITING_VERSION_CHOICE,
        (BrokerState.AWAITING_VERSION_CHOICE, VersionChoice): BrokerState.OPEN,
        **{
            (BrokerState.OPEN, packet): BrokerState.OPEN
            for packet in (Push, Forward, Subscribe, Unsubscribe, Register, Unregister, Answer)
        },
    }
)
"""Packets the broker receives. A Forward is taken like a Push."""


class ClientState(enum.Enum):
    """State of a connection, on the client."""

    AWAITING_OFFER = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


CLIENT: Final = StateTable(
    {
        (ClientState.AWAITING_OFFER, VersionOffer): ClientState.OPEN,
        (ClientState.AWAITING_OFFER, Answer): ClientState.CLOSED,  # authentication refused
        (ClientState.OPEN, Answer): ClientState.OPEN,
        (ClientState.OPEN, Forward): ClientState.OPEN,
    }
)
"""Packets the client receives."""
