"""Files of a log of which some segments are only in an object store.

A segment has one name, that of its file in the folder of the log. Where the file is missing and its
marker is there, a copy is fetched into a cache on the local disk and read instead. So all readers,
in any process, need only the folder.
"""

import os
from pathlib import Path

from penstock.limits import TIER_OPEN_TRIES_MAX
from penstock.storage.arrow.format.file_names import INDEX, SEGMENT, base_offset_of
from penstock.storage.arrow.format.tiered import BadMarker, TieredSegment, load_marker
from penstock.storage.arrow.read.segment_cache import SegmentCache
from penstock.storage.files import Files

__all__ = ["TieredFiles"]


class TieredFiles(Files):
    """Real files, and copies of segments and indexes that are in an object store.

    Reading raises TierUnavailable while the store does not answer, LogDamaged for an object that is
    not what was uploaded, and FileNotFoundError for an object that is missing.
    """

    def open_to_read(self, path: Path) -> int:
        """Open an existing file for reading, or its copy."""
        try:
            return super().open_to_read(path)
        except FileNotFoundError:
            tiered = _tiered(path)
            if tiered is None:
                raise
        for left in reversed(range(TIER_OPEN_TRIES_MAX)):
            copy = SegmentCache.of(path.parent).fetch(tiered, path)
            try:
                handle = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # deleted meanwhile to make room
                if not left:
                    raise
                continue
            os.utime(handle)
            return handle
        raise AssertionError("the last try returns or raises")

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes, or of its object."""
        try:
            return super().size(path)
        except FileNotFoundError:
            tiered = _tiered(path)
            if tiered is None:
                raise
            return tiered.size if path.suffix == SEGMENT else tiered.index_size


def _tiered(path: Path) -> TieredSegment | None:
    """Return the marker of a segment or an index, None if there is none."""
    base = base_offset_of(path.name, SEGMENT)
    base = base_offset_of(path.name, INDEX) if base is None else base
    if base is None:
        return None
    try:
        return load_marker(Files(), path.parent, base)
    except (BadMarker, FileNotFoundError):
        return None
