"""Publishes prepared rows from threads: passes them to the event loop, waits for the outcome."""

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import structlog

from penstock.core.broker import Broker
from penstock.core.quotas import Quota
from penstock.errors import LogUnavailable, PenstockError, TooManyStoredBytes
from penstock.limits import SINK_WINDOW_BYTES, SINK_WINDOW_GROUPS
from penstock.memory import Purpose
from penstock.ports import Prepared

__all__ = ["Publisher"]

log = structlog.get_logger("penstock.flight")

_LOOK_SECONDS: Final = 1.0
"""How often a thread that waits for a quota looks whether the broker stops."""


class _Publication:
    """One call of `publish`: portions in order; after one has failed no more are accepted."""

    def __init__(self, owner: str, quota: Quota | None = None) -> None:
        self.owner = owner
        self.quota = quota
        self._changed = threading.Condition()
        self._portions = 0
        self._bytes = 0
        self._abandoned = False
        self.error: PenstockError | None = None

    def send(self, rows: Prepared) -> bool:
        """Wait for room in the window and count a portion; return False after a failure."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self._has_room(rows))
            if self.error is not None:
                return False
            self._portions += 1
            self._bytes += rows.held_bytes
            return True

    def _has_room(self, rows: Prepared) -> bool:
        return not self._portions or (
            self._portions < SINK_WINDOW_GROUPS
            and self._bytes + rows.held_bytes <= SINK_WINDOW_BYTES
        )

    def settled(self, rows: Prepared) -> None:
        """Count a portion as settled: it is safe, or has failed."""
        with self._changed:
            self._portions -= 1
            self._bytes -= rows.held_bytes
            self._changed.notify()

    def fail(self, error: PenstockError) -> None:
        """Accept no more portions."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify()

    def abandon(self) -> None:
        """Release all waiters: the event loop has stopped."""
        with self._changed:
            self.error = self.error or LogUnavailable("the broker is stopping")
            self._abandoned = True
            self._changed.notify()

    def drain(self) -> None:
        """Wait until every portion is settled, so that a count of the log finds them all."""
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or not self._portions)


class Publisher:
    """Publishes for threads that may block. Created in the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.memory = broker.memory
        """The memory budget; threads draw from it for rows."""
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._running: set[_Publication] = set()
        self._stopped = False

    def new_client(self) -> int:
        """Return a new client number for a sender."""
        future = asyncio.run_coroutine_threadsafe(self._new_client(), self._loop)
        return future.result()

    async def _new_client(self) -> int:
        return self._broker.sessions.next_number()

    def publish(
        self, portions: Iterable[Prepared], *, owner: str, quota: Quota | None = None
    ) -> int:
        """Publish portions in order; return how many rows are on disk.

        New topics belong to `owner`, a principal. If it raises, the first portions may be on disk,
        and none behind one that is not. Portions above the rates of the principal wait. Raise
        LogUnavailable, TopicTableFull, MemoryExhausted or TooManyStoredBytes.
        """
        if quota is not None:
            limit = self._within if quota.is_limited else self._counted
            portions = limit(quota, portions)
        publication = _Publication(owner, quota)
        with self.memory.draw(Purpose.FLIGHT, SINK_WINDOW_BYTES):
            return self._publish_all(publication, portions)

    def _publish_all(self, publication: _Publication, portions: Iterable[Prepared]) -> int:
        with self._lock:
            if self._stopped:
                raise LogUnavailable("the broker is stopping")
            self._running.add(publication)
        count = 0
        try:
            for rows in portions:
                if not publication.send(rows):
                    break
                self._post(publication, rows)
                count += len(rows)
        finally:
            publication.drain()
            with self._lock:
                self._running.discard(publication)
        if publication.error is not None:
            raise publication.error
        return count

    def _within(self, quota: Quota, portions: Iterable[Prepared]) -> Iterator[Prepared]:
        """Yield portions when the quota of their principal allows it."""
        for rows in portions:
            wait = asyncio.run_coroutine_threadsafe(self._admit(quota, rows), self._loop)
            while True:
                try:
                    wait.result(_LOOK_SECONDS)
                    break
                except TimeoutError:
                    if self._stopped:
                        wait.cancel()
                        raise LogUnavailable("the broker is stopping") from None
            yield rows

    def _counted(self, quota: Quota, portions: Iterable[Prepared]) -> Iterator[Prepared]:
        """Count portions for a principal without limits."""
        for rows in portions:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(quota.take, len(rows), rows.data_bytes)
            yield rows

    async def _admit(self, quota: Quota, rows: Prepared) -> None:
        clock = self._broker.clock
        while quota.available(clock.monotonic(), most=1) < 1:
            error = quota.exceeded(clock.monotonic(), self._broker.quota_reached)
            if isinstance(error, TooManyStoredBytes):
                raise error
            await asyncio.sleep(quota.wait_seconds())
        quota.take(len(rows), rows.data_bytes)

    def _post(self, publication: _Publication, rows: Prepared) -> None:
        try:
            self._loop.call_soon_threadsafe(self._publish, publication, rows)
        except RuntimeError:  # the loop is closed
            publication.abandon()

    def stop(self) -> None:
        """Release all waiters; later calls raise LogUnavailable."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for publication in running:
            publication.abandon()

    # --- In the event loop

    def _publish(self, publication: _Publication, rows: Prepared) -> None:
        if publication.error is not None:
            publication.settled(rows)
            return
        try:
            receipt = self._broker.publish_prepared(
                rows, owner=publication.owner, quota=publication.quota
            )
        except PenstockError as error:
            publication.fail(error)
            publication.settled(rows)
            return
        except Exception:  # the caller's thread waits: it must be told
            log.exception("rows not published")
            publication.fail(LogUnavailable("an internal error, see the broker's log"))
            publication.settled(rows)
            return
        self._broker.counters.messages_received_by_flight += len(rows)
        self._broker.when_settled(receipt, partial(self._settled, publication, rows))

    @staticmethod
    def _settled(publication: _Publication, rows: Prepared, safe: bool) -> None:  # noqa: FBT001
        if not safe:
            publication.fail(LogUnavailable("the disk failed"))
        publication.settled(rows)
