"""Frames with positions for clients that have asked for them, see `penstock.positions`."""

import sys
from array import array
from typing import Final

from penstock._kernels.batch import Batch
from penstock.core.encoders.encoder import Rows
from penstock.core.partitions import OwnPartition, Partition
from penstock.core.sessions import Session
from penstock.ports import Clock, LogWriter
from penstock.positions import Anchor, AnchoredPartition, Places, encode_anchor, encode_places

__all__ = ["PositionMarks"]

_STORED: Final = 256
_COMMIT_US_MAX: Final = 60_000_000
"""Messages that are delivered when they are committed were received this much earlier at most."""


class PositionMarks:
    """Encodes positions. A batch is encoded once for all clients that get the same rows."""

    def __init__(self, log: LogWriter, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    def places(self, batch: Batch, rows: Rows, *, partition: int, first: int, final: bool) -> bytes:
        """Return the payload for `rows` of a batch, whose first offset is `first`."""
        count = len(batch) if rows is None else len(rows)
        is_run = rows is None or (count > 0 and rows[-1] - rows[0] + 1 == count)
        start = rows[0] if rows is not None and is_run else 0
        columns = b""
        if batch.protocol == _STORED:
            numbers = memoryview(array("I", range(count))) if rows is None else rows
            columns = batch.times_and_senders(numbers)
        return encode_places(
            Places(
                self._log.log_id,
                partition,
                count,
                first + start,
                batch.timestamp_us,
                batch.sender(0).number if len(batch) else 0,
                is_final=final,
                rows=b"" if is_run or rows is None else _little_endian(rows),
                columns=columns,
            )
        )

    def anchor(
        self,
        session: Session,
        pattern: str,
        partitions: dict[int, Partition],
        *,
        name: str,
        is_replay: bool,
        in_group: bool,
    ) -> None:
        """Tell a client that asked for positions where a subscription takes effect.

        `name` is the client's name for the pattern. With `is_replay`, earlier messages follow; with
        `in_group`, those of a consumer group.
        """
        if session.mark is None:
            return
        log = self._log
        time_us = self._clock.now_us()
        found = {
            number: AnchoredPartition(
                each.next_offset,
                each.reader.expired_below(pattern) if pattern else each.reader.horizon,
                is_final=not isinstance(each, OwnPartition),
            )
            for number, each in partitions.items()
        }
        if any(each.is_final for each in found.values()):
            time_us -= _COMMIT_US_MAX
        if not partitions:
            found[log.partition] = AnchoredPartition(
                log.next_offset, log.next_offset, is_final=False
            )
        anchor = Anchor(
            name,
            log.log_id,
            time_us,
            found,
            has_history=bool(partitions),
            is_replay=is_replay,
            in_group=in_group,
        )
        session.link.write(session.mark(encode_anchor(anchor)))


def _little_endian(rows: "memoryview[int]") -> bytes:
    if sys.byteorder == "little":
        return rows.tobytes()
    numbers = array("I", rows)
    numbers.byteswap()
    return numbers.tobytes()
