"""A thread that reads from Kafka all the time, replaced when it hangs.

Calls of librdkafka have time limits, but one may ignore its limit. The thread notes each step that
it takes, and the event loop looks for these. If there are none, it starts another thread. The
earlier one ends when its call returns: its next step raises Replaced.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable

import structlog

from penstock.limits import (
    KAFKA_HANG_SECONDS_MAX,
    KAFKA_HANGING_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_UNFOLLOWED_SECONDS_MAX,
    KAFKA_WATCH_SECONDS,
)

__all__ = ["ReadingThread", "Replaced"]

log = structlog.get_logger("penstock.log")


class Replaced(Exception):
    """Another thread reads on: this one was in a call of librdkafka for too long."""


class ReadingThread:
    """Runs `read` in a thread, and knows whether it goes on and when each partition was read.

    Events of the log have its `name`.
    """

    def __init__(
        self,
        read: Callable[[], None],
        location: str,
        *,
        name: str = "follower",
        thread_name: str = "penstock-follow",
    ) -> None:
        self._read = read
        self._location = location
        self._name = name
        self._thread_name = thread_name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # the one that may take steps
        self._hanging: list[threading.Thread] = []  # those that were replaced
        self._stopped = False
        self._steps = 0
        self._steps_seen = 0  # by the event loop
        self._still_seconds = 0.0  # as the event loop counts
        self._read_at: dict[int, float] = {}  # by partition
        self._reason = ""
        self.leaderless: Collection[int] = ()
        """Partitions that no node can read, so that clients need no other node."""
        self.replaced = 0
        """Consumers and threads that were replaced since the start."""

    # --- In the event loop's thread ---------------------------------------------------------------

    def start(self) -> None:
        """Start a thread, which reads instead of an earlier one."""
        thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
        with self._lock:
            self._thread = thread
            self._still_seconds = 0.0
        thread.start()

    def watch(self) -> None:
        """Replace the thread if it hangs; called every KAFKA_WATCH_SECONDS.

        Time is counted in calls: a process that was stopped has not hung.
        """
        with self._lock:
            if self._thread is None or self._stopped:
                return
            if self._steps != self._steps_seen:
                self._steps_seen, self._still_seconds = self._steps, 0.0
                return
            self._still_seconds += KAFKA_WATCH_SECONDS
            if self._still_seconds < KAFKA_HANG_SECONDS_MAX:
                return
            self._hanging = [each for each in self._hanging if each.is_alive()]
            if len(self._hanging) >= KAFKA_HANGING_MAX:
                self._reason = f"{len(self._hanging)} threads hang in librdkafka; restart the node"
                return
            self._hanging.append(self._thread)
            reason = f"librdkafka has not returned for {KAFKA_HANG_SECONDS_MAX:g} seconds"
            self._reason = reason
            self.replaced += 1
        log.error("kafka thread replaced", log=self._location, thread=self._name, reason=reason)
        self.start()

    def stop(self) -> None:
        """Wait for the end of the thread, as long as a read may take."""
        with self._lock:
            thread, self._stopped = self._thread, True
        if thread is not None:
            thread.join(KAFKA_READ_SECONDS_MAX)
            if thread.is_alive():
                log.warning("kafka thread not ended", log=self._location, thread=self._name)

    @property
    def problem(self) -> str | None:
        """Why a partition with a leader has not been read for a while; None if all are."""
        leaderless = self.leaderless
        late = [each for each, is_late in self.late().items() if is_late and each not in leaderless]
        if not late:
            return None
        names = ", ".join("the state topic" if each < 0 else f"partition {each}" for each in late)
        return f"{names}: {self._reason or 'Kafka has records that are not read'}"

    def late(self) -> dict[int, bool]:
        """Return whether each partition has not been read for a while."""
        with self._lock:
            if self._stopped:
                return {}
            before = time.monotonic() - KAFKA_UNFOLLOWED_SECONDS_MAX
            return {number: at <= before for number, at in sorted(self._read_at.items())}

    # --- In the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read()
        except Replaced:
            log.warning("replaced kafka thread ended", log=self._location, thread=self._name)

    def step(self, *read: int) -> None:
        """Note that the thread goes on, and partitions that it has read; raise Replaced.

        What the caller does up to its next call of librdkafka takes less than
        KAFKA_HANG_SECONDS_MAX, so no other thread is started meanwhile.
        """
        with self._lock:
            if threading.current_thread() is not self._thread:
                raise Replaced
            self._steps += 1
            if read:
                self._read_at.update(dict.fromkeys(read, time.monotonic()))

    def wait(self) -> None:
        """Note that the thread waits for the event loop, not for Kafka; raise Replaced."""
        self.step(*self._read_at)

    def note(self, reason: str) -> None:
        """Note why a partition cannot be read; raise Replaced."""
        self.step()
        with self._lock:
            self._reason = reason

    def fail(self, reason: str) -> None:
        """Note why the thread needs another consumer; raise Replaced."""
        self.step()
        with self._lock:
            self._reason = reason
            self.replaced += 1

    def add(self, numbers: Iterable[int]) -> None:
        """Note partitions that are to be read from now on. Any thread may call it."""
        with self._lock:
            self._read_at.update(dict.fromkeys(numbers, time.monotonic()))
