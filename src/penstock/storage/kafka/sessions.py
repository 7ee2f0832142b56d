"""Clients that may resume on any node, in the state topic."""

from collections.abc import Callable

import msgspec
import structlog

from penstock.limits import KAFKA_SESSIONS_REMOVED_MAX
from penstock.ports import KeptSession
from penstock.storage.kafka.reader_threads import ReaderThreads
from penstock.storage.kafka.state import SESSION, StateTopic

__all__ = ["KafkaSessions"]

log = structlog.get_logger("penstock.log")


class KafkaSessions:
    """A `ports.SessionStore`; `post` runs work in the event loop's thread."""

    def __init__(
        self,
        state: StateTopic,
        threads: ReaderThreads,
        post: Callable[[Callable[[], None]], None],
        *,
        node: int,
    ) -> None:
        self.node = node
        self._state = state
        self._threads = threads
        self._post = post

    def find(self, key: str, then: Callable[[KeptSession | None], None]) -> None:
        """See ports.SessionStore. Without Kafka it is the last state that is known."""

        def work() -> None:
            try:
                self._state.refresh_all()
            except OSError as error:
                log.warning("sessions not read", error=str(error))
            except Exception:  # the client waits for an answer
                log.exception("sessions not read")
            found = self._state.load(SESSION + key, KeptSession)
            self._post(lambda: then(found))

        self._threads.submit(work)

    def remove_expired(self) -> None:
        """Remove clients whose time to resume is over, of this node and of nodes that do not run.

        Each call removes up to KAFKA_SESSIONS_REMOVED_MAX; raise OSError.
        """
        self._state.refresh()
        for key, node in self._state.expired_sessions(count=KAFKA_SESSIONS_REMOVED_MAX):
            if node == self.node or not self._state.is_running(node):
                self._state.send(key, None)

    def put(self, key: str, session: KeptSession | None) -> None:
        """See ports.SessionStore."""
        value = None if session is None else msgspec.json.encode(session)
        try:
            self._state.send(SESSION + key, value)
        except OSError as error:
            log.warning("session not kept", error=str(error))
