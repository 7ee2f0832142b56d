"""Periodic work of a node: it reports to the other nodes and loads the bounds of all partitions.

A node without recent reports counts as dead, so reports do not wait for a partition for which Kafka
does not answer.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from penstock.limits import KAFKA_AGAIN_SECONDS_MAX, LOG_RETENTION_SECONDS
from penstock.storage.kafka.nodes import Nodes
from penstock.storage.kafka.partition import KafkaPartition, NotAsked
from penstock.storage.kafka.reading_thread import ReadingThread, Replaced
from penstock.storage.kafka.sessions import KafkaSessions
from penstock.storage.kafka.state import StateTopic
from penstock.storage.kafka.topic_changes import TopicChanges

__all__ = ["Housekeeping"]

log = structlog.get_logger("penstock.log")

_WAIT_SECONDS: Final = 0.5
"""Longest wait of the thread before it notes that it does not hang."""


class Housekeeping:
    """Does the work in a thread of its own, so that commits and deliveries do not wait for it.

    `owns` returns whether this process owns the partition of the node; otherwise another process
    reports for the node. It is called in the thread after each read of the state topic, and must
    not block.
    """

    def __init__(
        self,
        state: StateTopic,
        partitions: Mapping[int, KafkaPartition],
        nodes: Nodes,
        sessions: KafkaSessions,
        topics: TopicChanges,
        *,
        location: str,
        owns: Callable[[], bool],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._nodes = nodes
        self._sessions = sessions
        self._topics = topics
        self._location = location
        self._owns = owns
        self._thread = ReadingThread(
            self._run, location, name="housekeeping", thread_name="penstock-look"
        )
        self._stopping = threading.Event()
        self._reports_at = 0.0

    # --- In the event loop's thread ---------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Its first work is due after LOG_RETENTION_SECONDS."""
        self._reports_at = time.monotonic() + LOG_RETENTION_SECONDS
        self._thread.start()

    def watch(self) -> None:
        """Replace the thread if it hangs; called every KAFKA_WATCH_SECONDS."""
        self._thread.watch()

    def stop(self) -> None:
        """End the thread; wait for it up to a limit."""
        self._stopping.set()
        self._thread.stop()

    # --- In the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(_WAIT_SECONDS):
            self._thread.step()
            if time.monotonic() < self._reports_at:
                continue
            try:
                self._report()
                self._load_bounds()
                self._sessions.remove_expired()
                self._thread.step()
                self._topics.forget()
            except OSError as error:
                log.warning("kafka not reached", log=self._location, error=str(error))
            except Replaced:
                raise
            except Exception:  # go on: a node without reports counts as dead
                log.exception("housekeeping failed")

    def _report(self) -> None:
        """Report how far this node follows the others; raise OSError."""
        self._reports_at = time.monotonic() + LOG_RETENTION_SECONDS
        self._state.refresh()
        self._thread.step()
        if self._owns():
            self._nodes.report()
            self._thread.step()

    def _load_bounds(self) -> None:
        """Load the bounds of each partition from Kafka; raise OSError."""
        for number, partition in sorted(dict(self._partitions).items()):
            if self._stopping.is_set():
                return
            try:
                partition.end_place(seconds_max=KAFKA_AGAIN_SECONDS_MAX)  # the next report waits
                self._thread.step()
                partition.load_horizon()
                self._thread.step()
                self._nodes.look(number)
            except NotAsked:
                pass
            except OSError as error:
                log.warning(
                    "partition not reached",
                    log=self._location,
                    partition=number,
                    error=str(error),
                )
            self._thread.step()
            if time.monotonic() > self._reports_at:
                self._report()
