"""State machines as tables of legal transitions."""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from penstock.errors import OutOfSequence

__all__ = ["StateTable"]

State = TypeVar("State", bound=enum.Enum)


class StateTable(Generic[State]):
    """The legal transitions of one role: (state, received packet type) to state."""

    def __init__(self, moves: Mapping[tuple[State, type], State]) -> None:
        self.moves = MappingProxyType(dict(moves))

    def advance(self, state: State, packet: object) -> State:
        """Return the state after `packet`; raise OutOfSequence and change nothing if illegal."""
        try:
            return self.moves[state, type(packet)]
        except KeyError:
            raise OutOfSequence(state.name, type(packet).__name__) from None
