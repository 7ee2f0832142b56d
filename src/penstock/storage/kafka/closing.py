"""Closes clients of librdkafka without waiting for them.

librdkafka ends the threads of a client when it is closed, and waits for each without a limit. While
brokers come and go, one of them may never end, so that the call does not return. Each client is
closed in a thread of its own: reading and writing go on with another client meanwhile.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException

from penstock.limits import KAFKA_CLOSE_SECONDS_MAX, KAFKA_CLOSING_MAX

__all__ = ["Closing"]

log = structlog.get_logger("penstock.log")

_REPORT_SECONDS: Final = 10.0
"""A client that takes longer to close is logged."""


class Closing:
    """The clients of one log that are being closed. Any thread may use it."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._changed = threading.Condition()
        self._started: dict[int, tuple[str, float]] = {}  # what is closed, and since when
        self._reported: set[int] = set()
        self._number = 0
        self._unstarted: list[Callable[[], None]] = []

    def close(self, name: str, close: Callable[[], object]) -> None:
        """Call `close` in a thread of its own, and return at once.

        If the machine has no thread left, this is done later.
        """
        with self._changed:
            self._number += 1
            number = self._number
            self._started[number] = name, time.monotonic()

        def run() -> None:
            try:
                with contextlib.suppress(KafkaException, RuntimeError):  # it is closed already
                    close()
            finally:
                self._ended(number)

        self._start_again()
        self._start(run)

    def _start(self, run: Callable[[], None]) -> None:
        # A thread of an executor would be waited for when the process ends.
        try:
            threading.Thread(target=run, name="penstock-close", daemon=True).start()
        except RuntimeError:  # the machine has no thread left: a later call starts one
            with self._changed:
                self._unstarted.append(run)

    def _start_again(self) -> None:
        """Start the threads that could not be started so far."""
        with self._changed:
            waiting, self._unstarted = self._unstarted, []
        for run in waiting:
            self._start(run)

    def drop(self, name: str, clients: list[Any]) -> None:
        """Free clients in a thread of its own; the list must have the only references to them.

        A producer has no other way to end that does not wait for its messages.
        """
        self.close(name, clients.clear)

    def _ended(self, number: int) -> None:
        with self._changed:
            name, since = self._started.pop(number)
            reported = number in self._reported
            self._reported.discard(number)
            self._changed.notify_all()
        if reported:
            seconds = round(time.monotonic() - since, 1)
            log.info("kafka client closed late", log=self._location, client=name, seconds=seconds)

    def wait(self, seconds_max: float = KAFKA_CLOSE_SECONDS_MAX) -> bool:
        """Wait until all clients are closed, for a while; return whether they are."""
        self._start_again()
        with self._changed:
            return self._changed.wait_for(lambda: not self._started, seconds_max)

    def report(self) -> None:
        """Log the clients that take long to close, each of them once."""
        self._start_again()
        now = time.monotonic()
        with self._changed:
            late = {
                number: name
                for number, (name, since) in self._started.items()
                if now - since > _REPORT_SECONDS and number not in self._reported
            }
            self._reported.update(late)
        for name in late.values():
            log.warning("kafka client not closed", log=self._location, client=name)

    @property
    def problem(self) -> str | None:
        """Say that too many clients do not close: each keeps its memory and threads."""
        with self._changed:
            count = len(self._reported)
        if count < KAFKA_CLOSING_MAX:
            return None
        return f"{count} clients of Kafka do not close; restart the node"
