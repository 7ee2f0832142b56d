"""Quarantine: copies of bytes that recovery cuts off a log."""

import itertools
from pathlib import Path

from penstock.limits import WALK_BYTES
from penstock.storage.arrow.format.file_names import quarantine_folder
from penstock.storage.files import TEMPORARY, Files

__all__ = ["keep_bytes", "only_zeros"]


def keep_bytes(files: Files, folder: Path, source: Path, *, position: int, length: int) -> Path:
    """Copy bytes of a partition's file to quarantine; they are on disk when this returns.

    The same bytes are stored once; other copies are never overwritten.
    """
    target_folder = quarantine_folder(folder)
    files.make_folder(target_folder)
    names = set(files.names(target_folder))
    for number in itertools.count(1):
        target = target_folder / f"{folder.name}-{source.stem}-{position}-{number}.bytes"
        if target.name not in names:
            break
        if _same(files, source, position, length, target):
            files.sync_folder(target_folder)  # an interrupted run may not have synced it
            return target
    temporary = target.with_name(target.name + TEMPORARY)
    files.remove(temporary)
    handle = files.create(temporary)
    try:
        for start in range(position, position + length, WALK_BYTES):
            size = min(WALK_BYTES, position + length - start)
            files.append(handle, [files.read(source, start, size)])
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(temporary, target)
    files.sync_folder(target_folder)
    return target


def _same(files: Files, source: Path, position: int, length: int, copy: Path) -> bool:
    return files.size(copy) == length and all(
        files.read(source, position + start, WALK_BYTES)[: length - start]
        == files.read(copy, start, WALK_BYTES)
        for start in range(0, length, WALK_BYTES)
    )


def only_zeros(files: Files, path: Path, *, position: int, length: int) -> bool:
    """Return whether all bytes are zero: pages that were never written."""
    for start in range(position, position + length, WALK_BYTES):
        data = files.read(path, start, min(WALK_BYTES, position + length - start))
        if data.strip(b"\0"):
            return False
    return True
