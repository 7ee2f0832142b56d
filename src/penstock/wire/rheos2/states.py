"""State tables of Rheos v2, one per role. There is no handshake."""

import enum
from typing import Final

from penstock.wire.rheos2.packets import Acknowledgment, Event
from penstock.wire.states import StateTable

__all__ = ["BROKER", "CLIENT", "BrokerState", "ClientState"]


class BrokerState(enum.Enum):
    """State of a client connection, on the broker."""

    OPEN = enum.auto()


BROKER: Final = StateTable({(BrokerState.OPEN, Event): BrokerState.OPEN})
"""Packets the broker receives."""


class ClientState(enum.Enum):
    """State of a connection, on the client."""

    OPEN = enum.auto()


CLIENT: Final = StateTable(
    {
        (ClientState.OPEN, Acknowledgment): ClientState.OPEN,
        (ClientState.OPEN, Event): ClientState.OPEN,
    }
)
"""Packets the client receives."""
