"""Limits the rate of dead letters, for each owner of consumer groups.

A dead letter is a second copy of a message, and members cause it without the right to publish. So
the groups of one owner write dead letters one after the other, at a limited rate.
"""

from collections import OrderedDict, deque
from collections.abc import Callable

from penstock.core.rates import RateLimit
from penstock.core.timers import Timers
from penstock.limits import (
    GROUP_DEAD_BYTES_PER_SECOND_MAX,
    GROUP_DEAD_PER_SECOND_MAX,
    GROUPS_MAX,
)
from penstock.ports import Clock

__all__ = ["DeadLetterRates"]


class _Rate:
    """The dead letters of the groups of one owner."""

    __slots__ = ("bytes", "has_turn", "is_planned", "letters", "waiting")

    def __init__(self, now: float) -> None:
        self.letters = RateLimit(GROUP_DEAD_PER_SECOND_MAX, now)
        self.bytes = RateLimit(GROUP_DEAD_BYTES_PER_SECOND_MAX, now)
        self.waiting: deque[Callable[[], None]] = deque()
        self.has_turn = False  # whether a dead letter is being written
        self.is_planned = False  # whether a timer starts the next group

    def has_room(self, now: float) -> bool:
        """Return whether another dead letter may be written at a monotonic time."""
        return all(each.available(now, most=1) > 0 for each in (self.letters, self.bytes))

    def wait_seconds(self) -> float:
        """Return the seconds until there is room."""
        return max(self.letters.wait_seconds(), self.bytes.wait_seconds())


class DeadLetterRates:
    """Lets the groups of each owner write dead letters in turn."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._rates: OrderedDict[str, _Rate] = OrderedDict()  # least recently used first

    def begin(self, owner: str, write: Callable[[], None]) -> None:
        """Call `write` when a group of an owner may write a dead letter; `end` follows."""
        rate = self._rates.get(owner)
        if rate is None:
            rate = self._rates[owner] = _Rate(self._clock.monotonic())
            self._remove_unused()
        self._rates.move_to_end(owner)
        rate.waiting.append(write)
        if not rate.is_planned:
            self._go_on(rate)

    def end(self, owner: str, size: int) -> None:
        """Count a dead letter of `size` bytes, 0 if none was written; plan the next turn."""
        rate = self._rates[owner]
        if size:
            rate.letters.take(1)
            rate.bytes.take(size)
        rate.has_turn = False
        self._plan(rate)

    def _plan(self, rate: _Rate) -> None:
        """Start the next group when there is room, not in this turn of the event loop.

        Each dead letter reads a row group.
        """
        if rate.waiting and not rate.has_turn and not rate.is_planned:
            has_room = rate.has_room(self._clock.monotonic())
            rate.is_planned = True
            self._timers.after(0.0 if has_room else rate.wait_seconds(), lambda: self._go_on(rate))

    def _go_on(self, rate: _Rate) -> None:
        rate.is_planned = False
        if rate.waiting and not rate.has_turn and rate.has_room(self._clock.monotonic()):
            rate.has_turn = True
            rate.waiting.popleft()()
        self._plan(rate)

    def _remove_unused(self) -> None:
        """Forget the least recently used rates above GROUPS_MAX."""
        while len(self._rates) > GROUPS_MAX:
            owner, rate = next(iter(self._rates.items()))
            if rate.has_turn or rate.waiting:
                return
            del self._rates[owner]
