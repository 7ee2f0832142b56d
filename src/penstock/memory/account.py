"""The memory of one connection, by purpose."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from penstock.limits import MEMORY_BLOCK_BYTES, MEMORY_CONNECTION_BYTES
from penstock.memory.purpose import PURPOSES, Purpose
from penstock.memory.shares import Share

if TYPE_CHECKING:
    from penstock.memory.budget import MemoryBudget

__all__ = ["UNLIMITED", "Account", "Holder", "Waiter"]

UNLIMITED: Final = 1 << 62
_SLACK_BYTES: Final = 4 * MEMORY_BLOCK_BYTES
"""Unused bytes that an account keeps until the next sweep."""


class Holder(Protocol):
    """The owner of an account: a connection."""

    def measure(self) -> int:
        """Update the sizes in the account; return the bytes that were moved so far."""

    def evict(self) -> None:
        """Release the memory and end the connection: others wait for it."""


class Waiter(NamedTuple):
    """A wait for `size` bytes, after which `then` is called."""

    purpose: Purpose
    size: int
    then: Callable[[], None]
    seconds_max: float | None


class Account:
    """The memory of one connection. The thread of the event loop owns it.

    A closed account accepts everything and holds nothing.
    """

    __slots__ = (
        "_budget",
        "_moved",
        "_moved_at",
        "authenticated",
        "bytes_max",
        "closed",
        "granted",
        "held",
        "holder",
        "overdrawn",
        "shares",
        "sizes",
    )

    def __init__(
        self, budget: "MemoryBudget", shares: tuple[Share, ...], *, bytes_max: int = UNLIMITED
    ) -> None:
        """Use `MemoryBudget.open` instead."""
        self._budget = budget
        self._moved = 0
        self._moved_at = 0.0
        self.shares = shares
        self.bytes_max = bytes_max
        self.sizes = [0] * PURPOSES
        """Bytes held, by purpose."""
        self.held = 0
        """Bytes held for all purposes."""
        self.granted = 0
        """Bytes drawn from the budget: at least `held`."""
        self.authenticated = bytes_max == UNLIMITED
        """Whether the client has completed its handshake; before, it may hold little."""
        self.holder: Holder | None = None
        self.closed = False
        self.overdrawn = False
        """Whether `force` has exceeded a share since the last successful `hold`."""

    def size(self, purpose: Purpose) -> int:
        """Return the bytes held for a purpose."""
        return self.sizes[purpose]

    def hold(self, purpose: Purpose, size: int) -> bool:
        """Set the bytes held for a purpose; return False and change nothing if there is no room."""
        sizes = self.sizes
        needed = self.held + size - sizes[purpose]
        if needed > self.granted:
            if self.closed:
                return True
            if not self._budget.grow(self, needed):
                return False
        elif needed + _SLACK_BYTES < self.granted:
            self._budget.shrink(self, needed)
        sizes[purpose] = size
        self.held = needed
        return True

    def force(self, purpose: Purpose, size: int) -> bool:
        """Set the bytes held for a purpose, also beyond the limits; return False if beyond."""
        if self.hold(purpose, size):
            return True
        needed = self.held + size - self.sizes[purpose]
        self._budget.overdraw(self, needed)
        self.sizes[purpose] = size
        self.held = needed
        return False

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes could be held now."""
        needed = self.held + size
        return needed <= self.granted or self.closed or self._budget.has_room(self, needed)

    def ever_fits(self, size: int) -> bool:
        """Return whether `size` bytes could be held if all others held nothing."""
        room = self._budget.account_bytes_max if self.shares else UNLIMITED
        return size + MEMORY_CONNECTION_BYTES <= min(self.bytes_max, room)

    def wait(
        self,
        purpose: Purpose,
        size: int,
        then: Callable[[], None],
        *,
        seconds_max: float | None = None,
    ) -> None:
        """Hold `size` bytes for a purpose as soon as there is room, then call `then`.

        After `seconds_max` the holder is evicted instead.
        """
        self._budget.enqueue(self, Waiter(purpose, size, then, seconds_max))

    def identify(self, principal: str | None) -> None:
        """Lift the limit before authentication; None is an anonymous client."""
        self.bytes_max = UNLIMITED
        self.authenticated = True
        self._budget.identify(self, principal)

    def close(self) -> None:
        """Return all memory."""
        if not self.closed:
            self.closed = True
            self._budget.close(self)

    # --- Called by the budget ---------------------------------------------------------------------

    def room_of(self, needed: int) -> int:
        """Return the bytes to draw for `needed` bytes: whole blocks above the connection's own."""
        if needed <= MEMORY_CONNECTION_BYTES:
            return MEMORY_CONNECTION_BYTES
        return -(-needed // MEMORY_BLOCK_BYTES) * MEMORY_BLOCK_BYTES

    def idle_seconds(self, now: float) -> float:
        """Measure the account; return the time since it moved a block, 0 if it holds little."""
        if self.holder is None:
            return 0.0
        moved = self.holder.measure()
        if self.held - self.sizes[Purpose.CONNECTIONS] <= MEMORY_BLOCK_BYTES:
            self._moved_at = 0.0
            return 0.0
        if moved - self._moved >= MEMORY_BLOCK_BYTES or not self._moved_at:
            self._moved, self._moved_at = moved, now
        return now - self._moved_at

    def forget_progress(self) -> None:
        """Measure progress anew: the account holds little."""
        self._moved_at = 0.0

    @property
    def share_bytes(self) -> int:
        """The most that a share of the account holds, without the first block of connections."""
        return max((share.large for share in self.shares[1:]), default=self.granted)
