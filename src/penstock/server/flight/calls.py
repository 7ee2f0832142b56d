"""Limits of the calls that run at the same time, and the watch over those that stall."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from penstock.flight.errors import TooBusy
from penstock.limits import (
    FLIGHT_PAUSE_FACTOR,
    FLIGHT_PAUSE_SECONDS_MAX,
    FLIGHT_WAIT_SECONDS_MAX,
)

__all__ = ["CallLimit", "StallWatch", "WorkLimit"]

_WATCH_SECONDS: Final = 0.5

Item = TypeVar("Item")


class CallLimit:
    """Lets `calls_max` calls run at a time, and `principal_max` of one principal; others wait."""

    def __init__(self, calls_max: int, principal_max: int) -> None:
        self._calls_max = calls_max
        self._principal_max = principal_max
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._queue: dict[threading.Lock, str] = {}
        """A locked lock for each call that waits, and its principal; oldest first."""

    @contextmanager
    def entered(self, principal: str) -> Iterator[None]:
        """Wait for a place; raise TooBusy if there is none in time."""
        with self._lock:
            waits = not self._has_room(principal)
            if waits:
                place = threading.Lock()
                place.acquire()
                self._queue[place] = principal
            else:
                self._running[principal] += 1
        if waits and not place.acquire(timeout=_wait_seconds()):
            with self._lock:
                if self._queue.pop(place, None) is not None:  # not given in the meantime
                    raise TooBusy(min(self._calls_max, self._principal_max))
        try:
            yield
        finally:
            self._leave(principal)

    def _leave(self, principal: str) -> None:
        """Give the place to the oldest call that may have it. Only that one wakes up."""
        with self._lock:
            self._running[principal] -= 1
            if not self._running[principal]:
                del self._running[principal]
            for place, waiting in self._queue.items():
                if self._has_room(waiting):
                    del self._queue[place]
                    self._running[waiting] += 1
                    place.release()
                    break

    def _has_room(self, principal: str) -> bool:
        return (
            self._running.total() < self._calls_max
            and self._running[principal] < self._principal_max
        )


def _wait_seconds() -> float:
    return FLIGHT_WAIT_SECONDS_MAX


class WorkLimit:
    """Lets `threads_max` threads of calls work at a time; others wait for them.

    The interpreter lock goes to any of the threads that want it. With many of them the event loop
    would rarely get it. While the loop is behind, a thread sleeps for FLIGHT_PAUSE_FACTOR times the
    processor time that it used, and keeps its place meanwhile. Work must not wait for anything that
    another call does.
    """

    def __init__(
        self, threads_max: int, is_behind: Callable[[float], bool] = lambda _now: False
    ) -> None:
        self._places = threading.Semaphore(threads_max)
        self._is_behind = is_behind
        self._used = threading.local()

    def __enter__(self) -> None:
        self._places.acquire()
        self._used.since = time.thread_time()

    def __exit__(self, *_error: object) -> None:
        self.pause()
        self._places.release()

    def pause(self) -> None:
        """Sleep if the event loop is behind, by the time that this thread worked since the last."""
        now = time.thread_time()
        if self._is_behind(time.monotonic()):
            worked = now - self._used.since
            time.sleep(min(worked * FLIGHT_PAUSE_FACTOR, FLIGHT_PAUSE_SECONDS_MAX))
        self._used.since = now

    @contextmanager
    def left(self) -> Iterator[None]:
        """Give the place of this thread to others while it waits for something."""
        self._places.release()
        try:
            yield
        finally:
            self._places.acquire()

    def over(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield items; making one is work, using it is not."""
        while True:
            with self:
                item = next(items, None)
            if item is None:
                return
            yield item

    def paced(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items, with a pause after each. A thread at work must iterate over them."""
        for item in items:
            yield item
            self.pause()


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
