"""What is no longer kept: whole closed segments, the oldest first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol as Port

from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.file_names import damage_path, index_path, segment_path

__all__ = ["Kept", "expired", "remove_segments"]


class Kept(Port):
    """What must be known of a closed segment to judge it."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def last_us(self) -> int | None:
        """The latest time of a message in it, None if it has none."""


def expired(
    segments: Sequence[Kept],
    *,
    active_bytes: int,
    now_us: int,
    age_us_max: int | None = None,
    bytes_max: int | None = None,
) -> int:
    """Return how many of the oldest closed segments are not to be kept.

    A segment goes when its latest message is older than `age_us_max`, or when all that is kept,
    `active_bytes` of the segment that is being filled included, is more than `bytes_max` though the
    next were to stay. The last closed segment always stays: it says where the log ends.
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
    """Remove segments with all that belongs to them.

    The horizon in log.json must be behind them already: when this is cut short, or some come back
    with a power cut, recovery finishes it.
    """
    for base_offset in base_offsets:
        files.remove(segment_path(folder, base_offset))
        files.remove(index_path(folder, base_offset))
        files.remove(damage_path(folder, base_offset))
    files.sync_folder(folder)
