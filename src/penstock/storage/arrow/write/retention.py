"""Retention: removes whole closed segments, the oldest first."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol as Port

import structlog

from penstock.errors import LogError
from penstock.storage.arrow.format.file_names import (
    damage_path,
    index_path,
    rows_path,
    segment_path,
)
from penstock.storage.files import Files
from penstock.storage.options import Retention

__all__ = ["ClosedSegment", "SegmentRetention", "expired", "remove_segments", "tried_again"]

log = structlog.get_logger("penstock.log")


class ClosedSegment(Port):
    """A closed segment, as far as retention needs it."""

    @property
    def base_offset(self) -> int:
        """Offset of the first message."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def last_us(self) -> int | None:
        """Latest time of a message, None if there is none."""


def expired(
    segments: Sequence[ClosedSegment],
    *,
    active_bytes: int,
    now_us: int,
    age_us_max: int | None = None,
    bytes_max: int | None = None,
) -> int:
    """Return how many of the oldest closed segments are expired.

    A segment expires when its latest message is older than `age_us_max`, or when the total size,
    with `active_bytes` of the active segment, exceeds `bytes_max`. The last closed segment always
    stays: it tells where the log ends.
    """
    total = sum(segment.size for segment in segments) + active_bytes
    count = 0
    for segment in segments[:-1]:
        old = age_us_max is not None and (
            segment.last_us is None or segment.last_us < now_us - age_us_max
        )
        large = bytes_max is not None and total > bytes_max
        if not old and not large:
            break
        total -= segment.size
        count += 1
    return count


def remove_segments(files: Files, folder: Path, base_offsets: Sequence[int]) -> None:
    """Remove segments with their indexes, row indexes and damage files.

    The horizon in log.json must be past them already: if this is interrupted, or a power cut brings
    some back, recovery removes them.
    """
    for base_offset in base_offsets:
        files.remove(segment_path(folder, base_offset))
        files.remove(index_path(folder, base_offset))
        files.remove(rows_path(folder, base_offset))
        files.remove(damage_path(folder, base_offset))
    files.sync_folder(folder)


@contextlib.contextmanager
def tried_again() -> Iterator[None]:
    """Log the failure of a step of retention, which is tried again; the other steps go on.

    The disk may fail, or the object store that has a segment or its index.
    """
    try:
        yield
    except (OSError, LogError) as error:
        log.warning("old segments not removed", error=str(error))


class SegmentRetention:
    """Applies the retention settings of a log, in the writer thread.

    `advance` stores a new horizon and takes the expired segments out of the catalog.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        settings: Retention,
        advance: Callable[[list[int], int], None],
    ) -> None:
        self._files = files
        self._folder = folder
        self._settings = settings
        self._advance = advance
        self._expired: list[int] = []  # segments whose files may still be there
        self.excess_bytes = 0
        """Bytes by which the log is larger than its bound: the newest segments always stay."""
        self.removed = 0
        """Segments that were removed since the start."""

    def apply(self, closed: Sequence[ClosedSegment], *, active_bytes: int, gone: int = 0) -> None:
        """Remove expired segments; a failure is logged and the next call tries again.

        The first `gone` ones have no message left by the rules of topics.
        """
        age = self._settings.age_seconds_max
        count = gone + expired(
            closed[gone:],
            active_bytes=active_bytes,
            now_us=time.time_ns() // 1000,
            age_us_max=None if age is None else int(age * 1_000_000),
            bytes_max=self._settings.bytes_max,
        )
        if not count and not self._expired:
            return
        with tried_again():
            if count:
                bases = [each.base_offset for each in closed[:count]]
                self._advance(bases, closed[count].base_offset)
                self._expired += bases
            remove_segments(self._files, self._folder, self._expired)
            self.removed += len(self._expired)
            log.info(
                "old segments removed",
                segments=len(self._expired),
                horizon=closed[count].base_offset,
            )
            self._expired.clear()

    def check(self, size: int) -> None:
        """Note by how much the log exceeds its bound after retention; log when that begins."""
        bound = self._settings.bytes_max
        excess = 0 if bound is None else max(size - bound, 0)
        if excess and not self.excess_bytes:
            log.warning("retention bound not held", bytes=size, bytes_max=bound)
        self.excess_bytes = excess
