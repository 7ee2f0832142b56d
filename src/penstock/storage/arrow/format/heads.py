"""Reads and checks the heads of segments."""

from pathlib import Path
from typing import NamedTuple

from penstock._kernels.crc32c import crc32c
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.segment import HEAD_BYTES_MAX, BadHead, Head, parse_head
from penstock.storage.files import Files

__all__ = ["FirstBytes", "read_head"]


class FirstBytes(NamedTuple):
    """The head of a segment, its checksum, and its fault; empty if it is good."""

    head: Head | None
    crc: int
    fault: str


def read_head(
    files: Files, folder: Path, base_offset: int, *, log_id: int | None, partition: int
) -> FirstBytes:
    """Read the head of a segment; raise LogFormatTooNew.

    It has a checksum, and must also fit the rest of the log.
    """
    path = segment_path(folder, base_offset)
    try:
        data = files.read(path, 0, HEAD_BYTES_MAX)
        found = parse_head(data, path=str(path))
    except (BadHead, OSError) as error:
        return FirstBytes(None, 0, str(error) or "it cannot be read")
    fault = ""
    if log_id is not None and found.log_id != log_id:
        fault = f"it belongs to log {found.log_id:012x}"
    elif found.partition != partition:
        fault = f"it belongs to partition {found.partition}"
    elif found.base_offset != base_offset:
        fault = f"it belongs to the segment at {found.base_offset}"
    elif found.previous_end > base_offset:
        fault = f"it says that the segment before it ends at {found.previous_end}"
    return FirstBytes(found, crc32c([data[: found.size]]), fault)
