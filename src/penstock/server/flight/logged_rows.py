"""Finds the rows of an epoch that are in the log, to publish only the other staged rows.

When tasks run again, rows may have another order, or be in other tasks. So rows are compared by
their content, and equal rows are counted.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flight.errors import EpochDiffers, StagingFull
from penstock.limits import SINK_COMPARED_ROWS_MAX
from penstock.protocols import FLIGHT
from penstock.storage.schema import ROWS_SCHEMA

__all__ = ["EPOCH_COLUMNS", "LoggedRows", "of_epoch"]

EPOCH_COLUMNS = ("sender", "protocol", "correlation")
"""Columns by which the rows of an epoch are found."""


def of_epoch(
    batches: Iterable[pa.RecordBatch], writer: str, epoch: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an epoch from batches of the log."""
    mark = f"{writer}/{epoch}/"
    for batch in batches:
        if writer not in batch.column("sender").dictionary.to_pylist():
            continue
        ours = pc.and_kleene(
            pc.starts_with(batch.column("correlation"), mark),
            pc.equal(batch.column("protocol").dictionary_decode(), FLIGHT.label),
        )
        ours = pc.and_kleene(ours, pc.equal(batch.column("sender").dictionary_decode(), writer))
        found = batch.filter(ours)
        if len(found):
            yield found


class LoggedRows:
    """Digests of the rows of an epoch in the log; StagingFull if there are too many to compare."""

    def __init__(self, batches: Iterable[pa.RecordBatch], *, writer: str, epoch: int) -> None:
        self._writer = writer
        self._epoch = epoch
        self._digests: Counter[bytes] = Counter()
        self.count = 0
        for batch in batches:
            self.count += len(batch)
            if self.count > SINK_COMPARED_ROWS_MAX:
                raise StagingFull(writer, "rows to compare", SINK_COMPARED_ROWS_MAX)
            self._digests.update(_digests(batch))

    def check(self, staged: Iterable[pa.RecordBatch]) -> None:
        """Raise EpochDiffers unless all rows in the log are staged too."""
        left = self._digests.copy()
        for rows in staged:
            left.subtract(digest for digest in _digests(rows) if digest in left)
        others = sum(count for count in left.values() if count > 0)
        if others:
            raise EpochDiffers(self._writer, self._epoch, others)

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows without those in the log; each row in the log removes one equal row."""
        missing = []
        for digest in _digests(rows):
            found = self._digests[digest] > 0
            if found:
                self._digests[digest] -= 1
            missing.append(not found)
        return rows.filter(pa.array(missing, pa.bool_()))


def _digests(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield a digest of each row."""
    columns = [rows.column(name).to_pylist() for name in ROWS_SCHEMA.names]
    for topic, value, key, headers in zip(*columns, strict=True):
        pairs = [(each["key"], each["value"]) for each in headers]
        content = msgspec.msgpack.encode((topic, value, key, pairs))
        yield hashlib.blake2b(content, digest_size=16).digest()
