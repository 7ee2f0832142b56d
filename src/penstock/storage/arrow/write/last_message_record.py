"""Keeps the record of last messages up to date, in the thread that merges and indexes segments."""

import threading
import time
from collections.abc import Sequence

import pyarrow as pa

from penstock.limits import LAST_RECORD_GROWTH, LAST_RECORD_SHARE
from penstock.ports.text_columns import text_column
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index_file import StaleIndex, Summary, load_summary
from penstock.storage.arrow.format.last_messages_file import LastMessages, save_last_messages
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.last_messages import last_messages
from penstock.storage.arrow.read.last_record import fitting_last_messages
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.files import Files

__all__ = ["LastMessageRecord"]


class _Stopped(Exception):
    """The broker stops: the record stays as it is."""


class LastMessageRecord:
    """Updates the record of a log.

    The record is written anew when the closed segments behind it have `growth` times its bytes, so
    that writing costs little. The thread works for a `share` of the time, and sleeps otherwise.
    """

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        *,
        growth: int = LAST_RECORD_GROWTH,
        share: float = LAST_RECORD_SHARE,
    ) -> None:
        self._files = files
        self._catalog = catalog
        self._growth = growth
        self._share = share
        self._stopping = threading.Event()
        self._working_since = 0.0
        self._end = -1  # of the record that was written or found last
        self._size = 0

    def stop(self) -> None:
        """Cancel the running update. Any thread may call."""
        self._stopping.set()

    def update(self, closed: Sequence[Segment]) -> None:
        """Add the closed segments behind the record, if they are large enough; raise OSError."""
        waiting = [each for each in closed if each.end_offset > self._end]
        if sum(each.size for each in waiting) <= self._growth * self._size:
            return
        last, self._size = fitting_last_messages(self._files, self._catalog) or (None, 0)
        self._end = -1 if last is None else last.end
        waiting = self._after_remote([each for each in closed if each.end_offset > self._end])
        ends = [self._summary(segment) for segment in waiting]
        while ends and ends[-1] is None:  # the next start writes its index
            ends.pop()
        summary = ends[-1] if ends else None
        if summary is None or (
            sum(each.size for each in waiting[: len(ends)]) <= self._growth * self._size
        ):
            return
        if last is None or not self._follows(closed, waiting[0], last):
            last = LastMessages.none_from(waiting[0].base_offset)
        try:
            last = self._added(last, waiting[: len(ends)], summary)
        except _Stopped:
            return
        self._size = save_last_messages(self._files, self._catalog.folder, last)
        self._end = last.end

    def _added(
        self, last: LastMessages, segments: Sequence[Segment], summary: Summary
    ) -> LastMessages:
        """Return the record with the messages of some segments; raise _Stopped or OSError."""
        self._working_since = time.monotonic()
        for segment in segments:
            found = last_messages(
                self._catalog,
                lambda _: True,
                segment.base_offset,
                segment.end_offset,
                rest=self._rest,
            )
            last = last.followed_by(
                text_column(list(found)),
                pa.array(found.values(), pa.int64()),
                end=segment.end_offset,
                last_crc=summary.last_crc,
                horizon=self._catalog.horizon,
            )
            self._rest()
        return last

    def _after_remote(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments after the last one that is only in an object store."""
        for place in range(len(segments), 0, -1):
            base_offset = segments[place - 1].base_offset
            if not segment_path(self._catalog.folder, base_offset).exists():
                return segments[place:]
        return segments

    def _follows(self, closed: Sequence[Segment], segment: Segment, last: LastMessages) -> bool:
        """Return whether no other segment is between the record and a segment."""
        return not any(last.end < each.end_offset <= segment.base_offset for each in closed)

    def _summary(self, segment: Segment) -> Summary | None:
        try:
            found = load_summary(self._files, self._catalog.folder, segment.base_offset)
        except StaleIndex:
            return None
        return found if found.end_offset == segment.end_offset else None

    def _rest(self) -> None:
        """Sleep, so that the work since the last rest is a share of the time; raise _Stopped."""
        taken = time.monotonic() - self._working_since
        if self._stopping.wait(taken * (1 / self._share - 1)):
            raise _Stopped
        self._working_since = time.monotonic()
