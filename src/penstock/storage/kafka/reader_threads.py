"""Threads that read from Kafka for clients; one that hangs in a call of librdkafka is replaced."""

import queue
import threading
import time
from collections.abc import Callable, Collection

import structlog

from penstock.limits import KAFKA_HANG_SECONDS_MAX, KAFKA_HANGING_MAX, LOG_READERS
from penstock.storage.kafka.calls import READ_THREAD

__all__ = ["ReaderThreads"]

log = structlog.get_logger("penstock.log")


class ReaderThreads:
    """Run functions in LOG_READERS threads. Any thread may call.

    When the call of a replaced thread returns, the thread completes its function and ends.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._hanging: list[threading.Thread] = []  # those that were replaced
        self._closed = False

    def submit(self, work: Callable[[], object]) -> None:
        """Run `work` in one of the threads; do nothing after `close`."""
        with self._lock:
            if self._closed:
                return
            while len(self._threads) < LOG_READERS:
                self._start()
        self._work.put(work)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=READ_THREAD, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while threading.current_thread() in self._threads:
            work = self._work.get()
            if work is None or self._closed:
                return
            try:
                work()
            except Exception:  # the thread must continue
                log.exception("kafka thread failed", log=self._location, thread="reader")

    def replace(self, hanging: Collection[threading.Thread]) -> None:
        """Replace the threads of this object that are in `hanging`."""
        reason = f"librdkafka has not returned for {KAFKA_HANG_SECONDS_MAX:g} seconds"
        with self._lock:
            self._hanging = [each for each in self._hanging if each.is_alive()]
            found = [each for each in self._threads if each in hanging]
            found = found[: KAFKA_HANGING_MAX - len(self._hanging)]
            if self._closed or not found:
                return
            self._threads = [each for each in self._threads if each not in found]
            self._hanging += found
            for _ in found:
                self._start()
        for _ in found:
            log.error("kafka thread replaced", log=self._location, thread="reader", reason=reason)

    @property
    def problem(self) -> str | None:
        """Why the node must be restarted: so many threads hang that none is replaced any more."""
        with self._lock:
            count = sum(each.is_alive() for each in self._hanging)
        if count < KAFKA_HANGING_MAX:
            return None
        return f"{count} threads hang in librdkafka; restart the node"

    def close(self, seconds_max: float) -> None:
        """End the threads after their current functions; wait for them up to `seconds_max`."""
        with self._lock:
            self._closed = True
            threads = self._threads.copy()
        for _ in threads:
            self._work.put(None)
        deadline = time.monotonic() + seconds_max
        for each in threads:
            each.join(max(deadline - time.monotonic(), 0))
        if any(each.is_alive() for each in threads):
            log.warning("kafka thread not ended", log=self._location, thread="reader")
