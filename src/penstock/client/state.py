"""Where a client is, as a table."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.client.options import State

__all__ = ["NEXT", "may_move"]

NEXT: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.NEW: frozenset({State.CONNECTING, State.CLOSED}),
        State.CONNECTING: frozenset({State.CONNECTED, State.CLOSED}),
        State.CONNECTED: frozenset({State.RECONNECTING, State.CLOSED}),
        State.RECONNECTING: frozenset({State.CONNECTED, State.CLOSED}),
        State.CLOSED: frozenset(),
    }
)
"""What is absent is illegal."""


def may_move(state: State, target: State) -> bool:
    """Tell whether a client in `state` may be in `target` next."""
    return target in NEXT[state]
