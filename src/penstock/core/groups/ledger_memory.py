"""The memory of the messages that a consumer group has not acknowledged.

Memory is drawn before messages are delivered. It is enough for the case that all of them wait for
another delivery or for a dead letter: a member may refuse thousands of messages at once, and a draw
could be refused then. A group without memory gets no further messages.

The memory is charged to the owner of the group, because messages remain when members leave.
"""

from penstock.core.groups.ledger import Ledger
from penstock.errors import MemoryExhausted
from penstock.limits import GROUP_MEMORY_STEP_BYTES, GROUP_UNACKED_BYTES
from penstock.memory import Draw, MemoryBudget, Purpose

__all__ = ["LedgerMemory"]


class LedgerMemory:
    """The memory of one group, drawn in steps."""

    __slots__ = ("_budget", "_draw", "_ledger", "_owner")

    def __init__(self, budget: MemoryBudget, owner: str, ledger: Ledger) -> None:
        self._budget = budget
        self._owner = owner
        self._ledger = ledger
        self._draw: Draw | None = None  # while it has any

    def room(self, count: int) -> int:
        """Draw memory for more messages; return for how many of `count` it is enough."""
        needed = self._needed
        if self._hold(needed + count * GROUP_UNACKED_BYTES):
            return count
        self._hold(needed + GROUP_UNACKED_BYTES)
        size = 0 if self._draw is None else self._draw.size
        return min(count, max(0, size - needed) // GROUP_UNACKED_BYTES)

    def has_room_for(self, reason_bytes: int) -> bool:
        """Draw memory for reasons to keep in the ledger; return False if there is too little."""
        return self._hold(self._needed + reason_bytes)

    def fit(self) -> bool:
        """Resize the draw to what the ledger needs now; return False if there is too little."""
        self._ledger.compact()
        needed = self._needed
        if not needed:
            self.release()
        elif self._draw is not None and _steps(needed) < self._draw.size:
            self._draw.resize(_steps(needed))
        return self._hold(needed)

    def release(self) -> None:
        """Give all memory back."""
        if self._draw is not None:
            self._draw.release()
            self._draw = None

    @property
    def _needed(self) -> int:
        return self._ledger.unacked * GROUP_UNACKED_BYTES + self._ledger.reason_bytes

    def _hold(self, size: int) -> bool:
        """Ensure a draw of at least `size` bytes; return False if there is no memory."""
        if size <= (0 if self._draw is None else self._draw.size):
            return True
        try:
            if self._draw is None:
                draw = self._budget.draw(Purpose.GROUPS, _steps(size), principal=self._owner)
                self._draw = draw
            else:
                self._draw.resize(_steps(size))
        except MemoryExhausted:
            return False
        return True


def _steps(size: int) -> int:
    return -(-size // GROUP_MEMORY_STEP_BYTES) * GROUP_MEMORY_STEP_BYTES
