"""Limits of the calls that run at the same time, and the watch over those that stall."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.flight.errors import TooBusy
from penstock.limits import FLIGHT_WAIT_SECONDS_MAX

__all__ = ["CallLimit", "StallWatch"]

_WATCH_SECONDS: Final = 0.5


class CallLimit:
    """Lets `calls_max` calls run at a time, and `principal_max` of one principal; others wait."""

    def __init__(self, calls_max: int, principal_max: int) -> None:
        self._calls_max = calls_max
        self._principal_max = principal_max
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def entered(self, principal: str) -> Iterator[None]:
        """Wait for a place; raise TooBusy if there is none in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(principal), _wait_seconds()):
                raise TooBusy(min(self._calls_max, self._principal_max))
            self._running[principal] += 1
            self._total += 1
        try:
            yield
        finally:
            with self._changed:
                self._total -= 1
                self._running[principal] -= 1
                if not self._running[principal]:
                    del self._running[principal]
                self._changed.notify_all()

    def _has_room(self, principal: str) -> bool:
        return self._total < self._calls_max and self._running[principal] < self._principal_max


def _wait_seconds() -> float:
    return FLIGHT_WAIT_SECONDS_MAX


class StallWatch:
    """Cuts the connection of a call whose client takes too long for one batch.

    The thread of such a call waits in gRPC, and cannot do it itself.
    """

    def __init__(self, cut: Callable[[str, str], None], seconds_max: float) -> None:
        self._cut = cut
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._since: dict[object, tuple[str, float]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="penstock-flight-watch", daemon=True
        )
        self._thread.start()

    @contextmanager
    def watching(self, peer: str) -> Iterator[None]:
        """Watch over the delivery of one batch to a connection."""
        key = object()
        with self._lock:
            self._since[key] = peer, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._since[key]

    def close(self) -> None:
        """End the watch."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(min(_WATCH_SECONDS, self._seconds_max)):
            latest = time.monotonic() - self._seconds_max
            with self._lock:
                stalled = {peer for peer, since in self._since.values() if since < latest}
            for peer in stalled:
                self._cut(peer, "its call does not read")
