"""The states of Rheos v1 as tables: one for each role, for there is no handshake."""

import enum
from typing import Final

from penstock.wire.rheos1.packets import Acknowledgment, Request, Response
from penstock.wire.states import StateTable

__all__ = ["BROKER", "CLIENT", "BrokerState", "ClientState"]


class BrokerState(enum.Enum):
    """What the broker knows of a client."""

    OPEN = enum.auto()


BROKER: Final = StateTable({(BrokerState.OPEN, Request): BrokerState.OPEN})
"""Packets the broker receives."""


class ClientState(enum.Enum):
    """What a client knows of its connection."""

    OPEN = enum.auto()


CLIENT: Final = StateTable(
    {
        (ClientState.OPEN, Acknowledgment): ClientState.OPEN,
        (ClientState.OPEN, Response): ClientState.OPEN,
    }
)
"""Packets the client receives."""
