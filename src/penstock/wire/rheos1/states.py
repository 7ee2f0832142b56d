"""State tables of Rheos v1, one per role. There is no handshake."""

import enum
from typing import Final

from penstock.wire.rheos1.packets import Acknowledgment, Request, Response
from penstock.wire.states import StateTable

__all__ = ["BROKER", "CLIENT", "BrokerState", "ClientState"]


class BrokerState(enum.Enum):
    """State of a client connection, on the broker."""

    OPEN = enum.auto()


BROKER: Final = StateTable({(BrokerState.OPEN, Request): BrokerState.OPEN})
"""Packets the broker receives."""


class ClientState(enum.Enum):
    """State of a connection, on the client."""

    OPEN = enum.auto()


CLIENT: Final = StateTable(
    {
        (ClientState.OPEN, Acknowledgment): ClientState.OPEN,
        (ClientState.OPEN, Response): ClientState.OPEN,
    }
)
"""Packets the client receives."""
