"""Turns of the event loop: how long the frames of all clients may take in one."""

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from penstock.limits import (
    BEHIND_TURN_DIVISOR,
    BUSY_TURN_SECONDS_MAX,
    DEFERRED_BYTES_MAX,
    LATE_WRITE_SECONDS_MAX,
    LOOP_BEHIND_SECONDS,
    LOOP_TURN_SECONDS_MAX,
    PRINCIPAL_TURN_SECONDS_MAX,
    SOURCE_SECONDS,
    SOURCE_SECONDS_MIN,
)

__all__ = ["DeferredInput", "LoopTurn", "LoopUse", "Source"]

_WHOLE_SECONDS: Final = SOURCE_SECONDS / math.log(2)
"""The value of `LoopUse.used` for clients that use the loop all the time."""
_STEP_SECONDS: Final = SOURCE_SECONDS / 512
"""Uses within this time count as one: clients are read thousands of times a second."""


class LoopUse:
    """The time of the event loop that some clients used lately."""

    __slots__ = ("__weakref__", "_at", "_seconds", "part", "turn", "turn_seconds")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._at = 0.0
        self.turn = -1
        """Number of the turn in which they used it last."""
        self.turn_seconds = 0.0
        """Seconds that they used in that turn."""
        self.part = math.inf
        """Seconds of `used` above which they count as heavy."""

    def used(self, now: float) -> float:
        """Return the seconds that were used lately; earlier ones count less."""
        return self._seconds * math.exp2((self._at - now) / SOURCE_SECONDS)

    def add(self, now: float, seconds: float) -> None:
        """Count a use."""
        if now - self._at > _STEP_SECONDS:
            self._seconds = self.used(now)
            self._at = now
        self._seconds += seconds


class Source(LoopUse):
    """The clients of one principal at one address."""

    __slots__ = ("principal",)

    def __init__(self, principal: LoopUse | None = None) -> None:
        super().__init__()
        self.principal = LoopUse() if principal is None else principal
        """All clients of the principal, at any address."""

    def add(self, now: float, seconds: float) -> None:
        """Count a use, for the principal too.

        This is `LoopUse.add` for both, without two calls: it runs for each read.
        """
        if now - self._at > _STEP_SECONDS:
            self._seconds = self.used(now)
            self._at = now
        self._seconds += seconds
        principal = self.principal
        if now - principal._at > _STEP_SECONDS:  # noqa: SLF001
            principal._seconds = principal.used(now)  # noqa: SLF001
            principal._at = now  # noqa: SLF001
        principal._seconds += seconds  # noqa: SLF001


class DeferredInput:
    """Connections whose input waits for a later turn.

    The principal that used the event loop least comes first, and of its addresses the one that used
    it least; connections of one address take turns.
    """

    def __init__(self) -> None:
        self._queues: dict[Source, deque[Callable[[], None]]] = {}
        self._order: list[tuple[float, float, int, Source]] = []
        self._entries = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, source: Source, take: Callable[[], None], now: float) -> None:
        """Add a connection of a source: `take` processes its input."""
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = deque()
            self._push(source, now)
        queue.append(take)

    def next(self, now: float) -> Callable[[], None] | None:
        """Remove and return the next one; None if there is none."""
        if not self._order:
            return None
        *_, source = heapq.heappop(self._order)
        queue = self._queues[source]
        take = queue.popleft()
        if queue:
            self._push(source, now)
        else:
            del self._queues[source]
        return take

    def _push(self, source: Source, now: float) -> None:
        used = source.principal.used(now), source.used(now)
        heapq.heappush(self._order, (*used, next(self._entries), source))


class LoopTurn:
    """The current turn of the event loop. Connections ask it before they process what they read.

    The owner of the event loop sets `schedule`, which calls a function in the next turn. Without it
    no turn is ever over. It also sets `flush`, which sends the writes of connections that wait: it
    is called at the end of a turn, and in a long one every LATE_WRITE_SECONDS_MAX.
    """

    def __init__(
        self,
        *,
        seconds_max: float = LOOP_TURN_SECONDS_MAX,
        busy_seconds_max: float = BUSY_TURN_SECONDS_MAX,
        deferred_bytes_max: int = DEFERRED_BYTES_MAX,
    ) -> None:
        self.schedule: Callable[[Callable[[], None]], object] | None = None
        self.flush: Callable[[], None] = _nothing
        self.deferred_bytes = 0
        """Received bytes that wait for a later turn."""
        self._seconds_max = seconds_max
        self._busy_seconds_max = busy_seconds_max
        self._always_seconds = busy_seconds_max / BEHIND_TURN_DIVISOR
        self._deferred_bytes_max = deferred_bytes_max
        self._started: float | None = None
        self._flushed_at = 0.0
        self._deferred_at = 0.0
        self.number = 0
        """Number of the turn."""
        self._principals: WeakValueDictionary[str, LoopUse] = WeakValueDictionary()
        self._sources: WeakValueDictionary[tuple[str, str], Source] = WeakValueDictionary()
        self._divided_at = 0.0
        self._alone = True  # at most one principal uses the loop

    def source(self, host: str, principal: str = "") -> Source:
        """Return the source of a principal's clients at an address.

        Clients that have not logged in, and anonymous ones, have no principal: together they have
        one part of the loop.
        """
        source = self._sources.get((principal, host))
        if source is None:
            whole = self._principals.get(principal)
            if whole is None:
                whole = self._principals[principal] = LoopUse()
            source = self._sources[principal, host] = Source(whole)
        return source

    def count(self, source: Source, now: float, seconds: float) -> None:
        """Count a use of the loop in this turn."""
        source.add(now, seconds)
        principal = source.principal
        if principal.turn == self.number:
            principal.turn_seconds += seconds
        else:
            principal.turn, principal.turn_seconds = self.number, seconds

    def is_heavy(self, source: Source, now: float) -> bool:
        """Return whether clients of a source used more than its part of the loop.

        Then they wait first, so that many connections of a few addresses do not delay others, nor
        many addresses of clients without credentials those that have some. The parts of all
        principals that use the loop are equal, within each those of its addresses, and they are
        parts of the whole time: not of the time that was used. Otherwise a crowd that has just come
        would go before all clients that are at work already.

        A principal that used half of its part has PRINCIPAL_TURN_SECONDS_MAX of each turn: a burst
        of its clients, which are all ready in one turn, does not make that turn long. One that used
        less does not wait, or many of its clients would wait for each other.
        """
        if now - self._divided_at > SOURCE_SECONDS / 4:
            self._divided_at = now
            self._divide(now)
        if self._alone and source.part == math.inf:
            return False  # no other source uses the loop
        whole = source.principal
        used = whole.used(now)
        if (
            used > whole.part / 2
            and whole.turn == self.number
            and whole.turn_seconds > PRINCIPAL_TURN_SECONDS_MAX
            and not self._alone
        ):
            return True
        return used > whole.part and source.used(now) > source.part

    def _divide(self, now: float) -> None:
        """Divide the whole time between the principals and sources that use the loop."""
        counts = Counter(
            each.principal for each in self._sources.values() if each.used(now) > SOURCE_SECONDS_MIN
        )
        part = _WHOLE_SECONDS / max(1, len(counts))
        self._alone = alone = len(counts) <= 1
        for principal in self._principals.values():
            # A principal alone may have all of the loop; its addresses share it.
            principal.part = 0.0 if alone else part
        for source in self._sources.values():
            count = counts[source.principal]
            source.part = math.inf if alone and count <= 1 else part / max(1, count)

    def defers(
        self, now: float, size: int, *, is_busy: bool = False, source: Source | None = None
    ) -> bool:
        """Return whether `size` received bytes have to wait, because the turn took too long.

        Bytes of a busy client, or of a heavy source, wait earlier, so that a crowd of busy clients
        does not delay others.
        """
        if self._started is None:
            if self.schedule is None:
                self.number += 1  # each call is a turn
            else:
                self._started = self._flushed_at = now
                self.schedule(self.end)
            return False
        if now - self._flushed_at > LATE_WRITE_SECONDS_MAX:
            self._flushed_at = now
            self.flush()
        took = now - self._started
        if took <= self._always_seconds or took <= self.shortened(self._busy_seconds_max, now):
            return False
        if took <= self._seconds_max and not (
            is_busy or (source is not None and self.is_heavy(source, now))
        ):
            return False
        if self.deferred_bytes:
            self._deferred_at = now
        return self.deferred_bytes + size <= self._deferred_bytes_max

    def shortened(self, seconds: float, now: float) -> float:
        """Return the time that a busy client gets instead of `seconds` if the loop is behind."""
        return seconds / BEHIND_TURN_DIVISOR if self.is_behind(now) else seconds

    def is_behind(self, now: float) -> bool:
        """Return whether several clients waited for a later turn just now. Any thread may ask."""
        return now - self._deferred_at < LOOP_BEHIND_SECONDS

    def end(self) -> None:
        """End the turn: the next one starts with the next read."""
        self._started = None
        self.number += 1
        self.flush()


def _nothing() -> None:
    pass
