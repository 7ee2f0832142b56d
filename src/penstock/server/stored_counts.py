"""Keeps the bytes that principals have in the log across restarts, without blocking the loop."""

import asyncio
import contextlib

import msgspec
import structlog

from penstock.core.stored_bytes import StoredCounts, StoredSpan
from penstock.limits import STORED_SAVE_SECONDS
from penstock.storage.stored_counts import KeptCounts

__all__ = ["StoredCountsKeeper"]

log = structlog.get_logger("penstock.server")


class _Kept(msgspec.Struct):
    """The counts of one log: spans of each principal."""

    log_id: int
    principals: dict[str, list[StoredSpan]]


class StoredCountsKeeper:
    """Writes the counts every STORED_SAVE_SECONDS if they have changed, and at the end."""

    def __init__(self, counts: StoredCounts, kept: KeptCounts, *, log_id: int) -> None:
        self._counts = counts
        self._kept = kept
        self._log_id = log_id
        self._saved = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take the counts of the last run, and keep them from now on; blocks for a moment."""
        try:
            data = self._kept.load()
            kept = None if data is None else msgspec.json.decode(data, type=_Kept)
        except (OSError, ValueError) as error:
            log.warning("stored bytes not read", error=str(error))
            kept = None
        if kept is not None and kept.log_id == self._log_id:
            self._counts.restore(kept.principals)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write the counts for the last time."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), STORED_SAVE_SECONDS)
            await self._save()

    async def _save(self) -> None:
        changes = self._counts.changes
        if changes == self._saved:
            return
        data = msgspec.json.encode(_Kept(self._log_id, self._counts.spans()))
        try:
            await asyncio.to_thread(self._kept.save, data)
        except OSError as error:
            log.warning("stored bytes not kept", error=str(error))
        else:
            self._saved = changes
