"""Calls of librdkafka that have not returned.

Calls have time limits, but librdkafka may exceed them. `hanging` has the threads in such calls.
Some of these are replaced; `problem` names the others.
"""

import contextlib
import itertools
import threading
from collections.abc import Collection, Iterator
from typing import Final

from penstock.limits import KAFKA_HANG_SECONDS_MAX, KAFKA_WATCH_SECONDS

__all__ = ["READ_THREAD", "Calls"]

READ_THREAD: Final = "penstock-read"
_REPLACED: Final = frozenset({READ_THREAD, "penstock-follow", "penstock-kafka", "penstock-look"})
"""Names of threads that are replaced when they hang."""


class _Call:
    """A running call, and its time so far."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.seconds = 0.0


class Calls:
    """The running calls of one log. Any thread may use it."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._running: dict[int, _Call] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note that a call runs."""
        number = next(self._numbers)
        self._running[number] = _Call()
        try:
            yield
        finally:
            del self._running[number]

    def watch(self) -> None:
        """Add to the time of each call; called every KAFKA_WATCH_SECONDS.

        No clock is read, so the time for which the process was suspended does not count.
        """
        for each in self._running.copy().values():
            each.seconds += KAFKA_WATCH_SECONDS

    @property
    def hanging(self) -> Collection[threading.Thread]:
        """The threads with a call that has run for KAFKA_HANG_SECONDS_MAX."""
        running = self._running.copy().values()
        return {each.thread for each in running if each.seconds >= KAFKA_HANG_SECONDS_MAX}

    @property
    def problem(self) -> str | None:
        """Why the node must be restarted: threads hang that are not replaced."""
        names = sorted(each.name for each in self.hanging if each.name not in _REPLACED)
        if not names:
            return None
        return f"librdkafka does not return in {', '.join(names)}; restart the node"
