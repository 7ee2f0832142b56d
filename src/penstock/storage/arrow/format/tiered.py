"""Markers of segments in an object store: `<base offset>.tiered.json` in the partition's folder.

A marker is written when the objects are complete, and removed when they are deleted. While there is
a marker, the segment belongs to the log, whether its local file is there or not.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from penstock._kernels.crc32c import crc32c
from penstock.storage.arrow.format.file_names import TIERED, base_offset_of, tiered_path
from penstock.storage.arrow.format.heads import FirstBytes
from penstock.storage.arrow.format.segment import FORMAT, Head
from penstock.storage.files import Files

__all__ = ["BadMarker", "TieredSegment", "load_marker", "load_markers", "save_marker"]

_MARKER_BYTES_MAX: Final = 16_384


class BadMarker(ValueError):
    """A marker that was changed or cannot be parsed."""


class TieredSegment(msgspec.Struct, frozen=True):
    """A segment in an object store, below `url`: enough to open the log without the store.

    The SHA-256 of the objects are checked when they are fetched. `head_size` to `previous_crc` are
    of the segment's head.
    """

    url: str
    log_id: int
    partition: int
    base_offset: int
    end_offset: int
    last_us: int | None
    last_crc: int
    size: int
    sha256: str
    index_size: int
    index_sha256: str
    damaged: bool
    """Whether the damage file of the segment is in the store too."""
    head_size: int
    head_crc: int
    previous_end: int
    previous_crc: int

    def first_bytes(self) -> FirstBytes:
        """Return the head as far as it is known, for a check of the order of segments."""
        head = Head(
            format=FORMAT,
            log_id=self.log_id,
            partition=self.partition,
            base_offset=self.base_offset,
            previous_end=self.previous_end,
            previous_crc=self.previous_crc,
            protocols=(),
            kinds=(),
            size=self.head_size,
        )
        return FirstBytes(head, self.head_crc, "")


class _Document(msgspec.Struct, frozen=True):
    format: int
    segment: TieredSegment
    crc32c: str


def _spelled(segment: TieredSegment) -> bytes:
    checksum = crc32c([msgspec.json.encode(segment)])
    return msgspec.json.encode(_Document(1, segment, f"{checksum:08x}")) + b"\n"


def save_marker(files: Files, folder: Path, segment: TieredSegment) -> None:
    """Write the marker of a segment; it is on disk when this returns."""
    files.replace(tiered_path(folder, segment.base_offset), _spelled(segment))


def load_marker(files: Files, folder: Path, base_offset: int) -> TieredSegment:
    """Read the marker of a segment; raise BadMarker or FileNotFoundError."""
    path = tiered_path(folder, base_offset)
    data = files.read(path, 0, _MARKER_BYTES_MAX)
    try:
        segment = msgspec.json.decode(data, type=_Document).segment
    except msgspec.MsgspecError as error:
        raise BadMarker(f"{path} cannot be read: {error}") from error
    if data != _spelled(segment) or segment.base_offset != base_offset:
        raise BadMarker(f"{path} is not what was written")
    return segment


def load_markers(files: Files, folder: Path, names: Iterable[str]) -> dict[int, TieredSegment]:
    """Read the markers among the names of a folder; one that cannot be read is left out."""
    found = {}
    for name in names:
        base = base_offset_of(name, TIERED)
        if base is None:
            continue
        try:
            found[base] = load_marker(files, folder, base)
        except (BadMarker, FileNotFoundError):
            continue
    return found
