"""The way of prepared groups into the event loop, and of their outcome back."""

import asyncio
import threading
from collections.abc import Iterable
from functools import partial

from penstock.core.broker import Broker
from penstock.errors import LogUnavailable, PenstockError
from penstock.limits import SINK_WINDOW_BYTES, SINK_WINDOW_GROUPS
from penstock.ports import Prepared

__all__ = ["Publisher"]


class _Publication:
    """Groups that go one behind the other: after one that failed none is taken any more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._groups = 0
        self._bytes = 0
        self._abandoned = False
        self.error: PenstockError | None = None

    def send(self, group: Prepared) -> bool:
        """Wait until there is room for a group, and count it in; False if none goes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self._has_room(group))
            if self.error is not None:
                return False
            self._groups += 1
            self._bytes += group.value_bytes
            return True

    def _has_room(self, group: Prepared) -> bool:
        return not self._groups or (
            self._groups < SINK_WINDOW_GROUPS
            and self._bytes + group.value_bytes <= SINK_WINDOW_BYTES
        )

    def settled(self, group: Prepared) -> None:
        """Count a group out: it is safe, or will never be."""
        with self._changed:
            self._groups -= 1
            self._bytes -= group.value_bytes
            self._changed.notify()

    def fail(self, error: PenstockError) -> None:
        """Let no more groups go."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify()

    def abandon(self) -> None:
        """Let nobody wait: the loop does not go on."""
        with self._changed:
            self.error = self.error or LogUnavailable("the broker is stopping")
            self._abandoned = True
            self._changed.notify()

    def drain(self) -> None:
        """Wait until every group is settled: whoever counts what is there must find them all."""
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or not self._groups)


class Publisher:
    """Publishes for threads that may wait. Made in the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._running: set[_Publication] = set()
        self._stopped = False

    def new_client(self) -> int:
        """Return a number for a sender."""
        future = asyncio.run_coroutine_threadsafe(self._new_client(), self._loop)
        return future.result()

    async def _new_client(self) -> int:
        return self._broker.sessions.next_number()

    def publish(self, groups: Iterable[Prepared]) -> int:
        """Publish groups in their order; return how many rows are on disk.

        When it raises, the first of the groups may be, and none behind one that is not. Raise
        LogUnavailable or TopicTableFull.
        """
        publication = _Publication()
        with self._lock:
            if self._stopped:
                raise LogUnavailable("the broker is stopping")
            self._running.add(publication)
        rows = 0
        try:
            for group in groups:
                if not publication.send(group):
                    break
                self._post(publication, group)
                rows += len(group)
        finally:
            publication.drain()
            with self._lock:
                self._running.discard(publication)
        if publication.error is not None:
            raise publication.error
        return rows

    def _post(self, publication: _Publication, group: Prepared) -> None:
        try:
            self._loop.call_soon_threadsafe(self._publish, publication, group)
        except RuntimeError:  # the loop is closed
            publication.abandon()

    def stop(self) -> None:
        """Let nobody wait any more."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for publication in running:
            publication.abandon()

    # --- In the loop

    def _publish(self, publication: _Publication, group: Prepared) -> None:
        if publication.error is not None:
            publication.settled(group)
            return
        try:
            receipt = self._broker.publish_prepared(group)
        except Exception as error:
            known = error if isinstance(error, PenstockError) else None
            publication.fail(known or LogUnavailable(repr(error)))
            publication.settled(group)
            if known is None:
                raise
            return
        self._broker.counters.messages_received_by_flight += len(group)
        self._broker.when_settled(receipt, partial(self._settled, publication, group))

    @staticmethod
    def _settled(publication: _Publication, group: Prepared, safe: bool) -> None:  # noqa: FBT001
        if not safe:
            publication.fail(LogUnavailable("the disk failed"))
        publication.settled(group)
