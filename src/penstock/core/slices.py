"""Long work that is done in slices, so that the event loop serves others in between."""

from collections import deque
from collections.abc import Callable, Iterator

import structlog

from penstock.core.timers import Timers
from penstock.core.turns import DeferredInput, Source
from penstock.limits import SLICE_FIRST_STEPS, SLICE_SECONDS_MAX
from penstock.ports import Clock

__all__ = ["Slices"]

log = structlog.get_logger("penstock.slices")


class Slices:
    """Queue of unfinished work. Each piece of work gets a step in turn.

    Work is an iterator; `next` does a step of well under a millisecond. The owner of the event loop
    sets `schedule`, which calls `run` in a later turn of the loop. Without it a timer does.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        *,
        seconds_max: float = SLICE_SECONDS_MAX,
        first_steps: int = SLICE_FIRST_STEPS,
    ) -> None:
        self.schedule: Callable[[Callable[[], None]], object] = self._schedule_by_timer
        self._timers = timers
        self._clock = clock
        self._seconds_max = seconds_max
        self._first_steps = first_steps
        self._work: deque[Iterator[None]] = deque()
        self._input = DeferredInput()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._work) + len(self._input)

    def add(self, work: Iterator[None]) -> None:
        """Do work in later turns of the loop."""
        self._work.append(work)
        self._schedule()

    def start(self, work: Iterator[None]) -> None:
        """Do the first steps of work now, within the time of a slice, the others in later turns."""
        ends = self._clock.monotonic() + self._seconds_max
        for _ in range(self._first_steps):
            if not self._step(work):
                return
            if self._clock.monotonic() >= ends:
                break
        self.add(work)

    def later(self, take: Callable[[], None], source: Source) -> None:
        """Call `take` in a later turn of the loop, to process input of a source."""
        self._input.add(source, take, self._clock.monotonic())
        self._schedule()

    def run(self) -> None:
        """Do steps until the time of a slice is over."""
        self._scheduled = False
        now = self._clock.monotonic()
        ends = now + self._seconds_max
        for _ in range(len(self._input)):  # those that are added meanwhile run later
            take = self._input.next(now)
            if take is not None:
                self._step(_once(take))
            now = self._clock.monotonic()
            if now >= ends:
                break
        while self._work:
            work = self._work.popleft()
            if self._step(work):
                self._work.append(work)
            if self._clock.monotonic() >= ends:
                break
        if self._work or self._input:
            self._schedule()

    def _step(self, work: Iterator[None]) -> bool:
        """Do a step; return whether more are left."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:  # a broken piece of work must not stop the others
            log.exception("background work failed")
            return False
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.schedule(self.run)

    def _schedule_by_timer(self, run: Callable[[], None]) -> None:
        self._timers.after(0.0, run)


def _once(callback: Callable[[], None]) -> Iterator[None]:
    callback()
    yield from ()
