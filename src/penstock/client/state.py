"""The legal state transitions of a client."""

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
"""A transition that is absent is illegal."""


def may_move(state: State, target: State) -> bool:
    """Return whether the transition from `state` to `target` is legal."""
    return target in NEXT[state]
