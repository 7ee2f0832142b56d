"""Pauses between requests about a partition for which Kafka does not answer."""

import errno
import threading
import time

from penstock.limits import (
    KAFKA_PAUSE_SECONDS_MAX,
    KAFKA_PAUSE_SECONDS_MIN,
    KAFKA_READ_SECONDS_MAX,
)

__all__ = ["NotAsked", "Pause"]


class NotAsked(OSError):
    """The request was not sent, because Kafka did not answer the last one about the partition."""


class Pause:
    """Tells the readers of one partition when to ask Kafka again. Any thread may use it.

    A request without an answer starts a pause. After the pause, a single thread asks Kafka. If
    there is no answer again, the next pause is twice as long, up to KAFKA_PAUSE_SECONDS_MAX.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._seconds = 0.0  # length of the last pause; 0 if Kafka has answered since
        self._until = 0.0

    def begin(self) -> bool:
        """Return whether the last request had no answer; raise NotAsked during the pause."""
        with self._lock:
            if not self._seconds:
                return False
            now = time.monotonic()
            if now < self._until:
                raise NotAsked(errno.EIO, f"Kafka: no answer for {self._name} so far")
            self._until = now + KAFKA_READ_SECONDS_MAX  # other threads wait for this one
            return True

    def failed(self, *, again: bool) -> None:
        """Note that there was no answer; `again` is the result of `begin`."""
        with self._lock:
            if self._seconds and not again:
                return  # another thread has asked at the same time
            self._seconds = min(2 * self._seconds, KAFKA_PAUSE_SECONDS_MAX)
            self._seconds = max(self._seconds, KAFKA_PAUSE_SECONDS_MIN)
            self._until = time.monotonic() + self._seconds

    def end(self) -> None:
        """Note that Kafka has answered."""
        if self._seconds:
            with self._lock:
                self._seconds = 0.0
