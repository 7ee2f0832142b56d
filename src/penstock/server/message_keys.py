"""Reads the keys of messages from the log, for deduplication after a start."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import structlog

from penstock.core.deduplication import CORRELATION_PREFIX, StoredKey, digest_of_correlation
from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon
from penstock.model import Kind
from penstock.ports import PartitionRange, Storage

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeyReader"]

log = structlog.get_logger("penstock.server")

_COLUMNS: Final = ("offset", "timestamp", "correlation")


class KeyReader:
    """Reads the last `keys_max` keys of a storage's own partition, in a thread."""

    def __init__(self, storage: Storage, *, keys_max: int) -> None:
        self._storage = storage
        self._keys_max = keys_max
        self._reading: asyncio.Task[None] | None = None

    def read(self, since_us: int, then: Callable[[Iterable[StoredKey]], None]) -> None:
        """Call `then` with the keys of messages since a time, in the order of their offsets.

        Of a log that cannot be read, these are the keys before the fault.
        """
        self._reading = asyncio.get_running_loop().create_task(self._read(since_us, then))

    async def _read(self, since_us: int, then: Callable[[Iterable[StoredKey]], None]) -> None:
        found: deque[StoredKey] = deque(maxlen=self._keys_max)
        try:
            await asyncio.to_thread(self._collect, since_us, found)
        except (LogError, OSError) as error:
            log.warning("message keys not read", error=str(error))
        then(found)

    def _collect(self, since_us: int, found: "deque[StoredKey]") -> None:
        partition = self._storage.partition
        end = self._storage.bounds()[partition].end
        start = self._storage.offset_at(partition, since_us)
        while start < end:
            try:
                for batch in self._batches(PartitionRange(partition, start, end)):
                    found.extend(_keys(batch))
            except LogDamaged as error:
                log.warning("message keys not read", error=str(error))
                start = max(error.resumes_at, start + 1)
            except OffsetBelowHorizon as error:  # retention was faster
                start = max(error.horizon, start + 1)
            else:
                return

    def _batches(self, span: PartitionRange) -> "Iterator[pa.RecordBatch]":
        from penstock.ports.selection import Selection  # noqa: PLC0415  (imports pyarrow: slow)

        selection = Selection(kinds=frozenset({Kind.PUBLISH.label}))
        return self._storage.scan(span, selection, columns=_COLUMNS)


def _keys(batch: "pa.RecordBatch") -> Iterator[StoredKey]:
    """Yield the keys of a record batch."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    texts = batch.column("correlation")
    if texts.null_count == len(texts):
        return
    rows = batch.select(_COLUMNS).filter(pc.starts_with(texts, CORRELATION_PREFIX))
    offsets = rows.column("offset").to_pylist()
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    found = rows.column("correlation").to_pylist()
    for offset, time, text in zip(offsets, times, found, strict=True):
        digest = digest_of_correlation(text)
        if digest is not None:
            yield StoredKey(digest, offset, time)
