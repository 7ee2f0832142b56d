"""The thread that writes to Kafka, replaced when it hangs.

Calls of librdkafka have time limits, but one may ignore its limit. The thread notes each step that
it takes, and the event loop looks for these while there is work. If there are none, another thread
goes on with the work that waits. The earlier one ends when its call returns: its next step raises
Replaced, so that it changes and reports nothing any more.
"""

import queue
import threading
from collections.abc import Callable

import structlog

from penstock.limits import (
    KAFKA_HANG_SECONDS_MAX,
    KAFKA_HANGING_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_WATCH_SECONDS,
)
from penstock.storage.kafka.reading_thread import Replaced

__all__ = ["WritingThread"]

log = structlog.get_logger("penstock.log")

_Work = Callable[[], object]


class WritingThread:
    """Does one piece of work after the other."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # the one that may take steps
        self._hanging: list[threading.Thread] = []  # those that were replaced
        self._works = False
        self._steps = 0
        self._steps_seen = 0  # by the event loop
        self._still_seconds = 0.0  # as the event loop counts
        self.replaced = 0
        """Threads that were replaced since the start."""

    # --- In the event loop's thread ---------------------------------------------------------------

    def start(self, first: _Work | None = None) -> None:
        """Start a thread, which does `first` and then all work that waits."""
        thread = threading.Thread(
            target=self._run, args=(first,), name="penstock-kafka", daemon=True
        )
        with self._lock:
            self._thread = thread
            self._works, self._still_seconds = False, 0.0
        thread.start()

    def later(self, work: _Work) -> None:
        """Run `work` in the thread, after all work so far. Any thread may call it."""
        self._work.put(work)

    def hangs(self) -> str | None:
        """Return why the thread must be replaced, None if not; called every KAFKA_WATCH_SECONDS.

        The thread takes no step any more. Time is counted in calls: a process that was stopped has
        not hung.
        """
        with self._lock:
            thread = self._thread
            if thread is None or thread in self._hanging:
                return None
            if self._steps != self._steps_seen or not self._works:
                self._steps_seen, self._still_seconds = self._steps, 0.0
                return None
            self._still_seconds += KAFKA_WATCH_SECONDS
            if self._still_seconds < KAFKA_HANG_SECONDS_MAX:
                return None
            self._hanging = [each for each in self._hanging if each.is_alive()] + [thread]
            self.replaced += 1
        reason = f"librdkafka has not returned for {KAFKA_HANG_SECONDS_MAX:g} seconds"
        if not self.replaceable:
            reason = f"{len(self._hanging)} threads hang in librdkafka; restart the node"
        log.error("log writer replaced", log=self._location, reason=reason)
        return reason

    @property
    def replaceable(self) -> bool:
        """Whether another thread may be started: each that hangs keeps its memory."""
        return len(self._hanging) < KAFKA_HANGING_MAX

    def finish(self) -> None:
        """Do all work so far, and end the thread; wait for it as long as a read may take."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._work.put(None)
            thread.join(KAFKA_READ_SECONDS_MAX)
            if thread.is_alive():
                log.warning("log writer not ended", log=self._location)

    # --- In the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Note that the thread goes on; raise Replaced if another one does its work.

        What the caller does up to its next call of librdkafka takes less than
        KAFKA_HANG_SECONDS_MAX, so no other thread is started meanwhile. Before the thread is
        started, any thread may do its work.
        """
        with self._lock:
            self._check()
            self._steps += 1

    def _check(self) -> None:
        current = threading.current_thread()
        if self._thread is not None and (current is not self._thread or current in self._hanging):
            raise Replaced

    def _set_works(self, *, works: bool) -> None:
        with self._lock:
            self._check()
            self._works = works
            self._steps += 1

    def _run(self, first: _Work | None) -> None:
        try:
            work = first or self._work.get()
            while work is not None:
                self._set_works(works=True)
                self._do(work)
                self._set_works(works=False)
                work = self._work.get()
        except Replaced:
            log.warning("replaced log writer ended", log=self._location)

    def _do(self, work: _Work) -> None:
        try:
            work()
        except Replaced:
            raise
        except Exception:  # the thread must continue: clients wait for it
            log.exception("log writer failed")
