"""Copies a log from an object store to a new data folder, after the folder of the broker was lost.

The store has the closed segments of the log, see `write.tiering`. They are copied to a folder of
another name, which becomes the partition's folder when all are on disk.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import CannotKeep, CannotReadStore
from penstock.storage.arrow.format.file_names import (
    DAMAGE,
    INDEX,
    SEGMENT,
    base_offset_of,
    partition_folder,
)
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.files import TEMPORARY, Files
from penstock.storage.object_store import ObjectStore, StoredObject

__all__ = ["Imported", "import_tier"]

_LOG_ID: Final = re.compile("[0-9a-f]{12}")


class Imported(NamedTuple):
    """Totals of the new folder."""

    messages: int
    segments: int
    start: int
    end: int


def import_tier(
    url: str, data: Path, *, partition: int, progress: Callable[[int], None]
) -> Imported:
    """Copy a partition from below a URL, which `[storage.tier]` has, to a folder without it.

    If there are several logs below the URL, the id of one must be its last part. Call `progress`
    with the bytes that were copied. Raise CannotReadStore or CannotKeep.
    """
    folder = partition_folder(data, partition)
    if folder.exists():
        raise CannotKeep(str(data), f"it has log/{partition} already")
    try:
        store, log_id = _find_log(url, partition)
        wanted = [each for each in store.objects(recursive=False) if _is_part(each)]
        bases = [base_offset_of(each.name, SEGMENT) for each in wanted]
        first = min((base for base in bases if base is not None), default=None)
    except OSError as error:
        raise CannotReadStore(url, error.strerror or str(error)) from error
    if first is None:
        raise CannotReadStore(url, f"it has no segment of partition {partition}")
    copied = folder.with_name(folder.name + TEMPORARY)
    files = Files()
    try:
        shutil.rmtree(copied, ignore_errors=True)
        files.make_folder(copied)
    except OSError as error:
        raise CannotKeep(str(data), error.strerror or str(error)) from error
    for each in wanted:
        _copy(store, each, copied, url)
        progress(each.size)
    try:
        # The segments tell how far they reach; none of them is missing at the beginning.
        save_state(files, copied, LogState(log_id, partition, horizon=first, end=first))
        files.sync_folder(copied)
        copied.rename(folder)
        files.sync_folder(folder.parent)
    except OSError as error:
        raise CannotKeep(str(data), error.strerror or str(error)) from error
    view = LogView(data, partition=partition)
    messages = sum(view.describe(each).messages for each in view.segments)
    return Imported(messages, len(view.segments), view.horizon, view.end)


def _find_log(url: str, partition: int) -> tuple[ObjectStore, int]:
    """Return the objects of a partition of the only log below a URL, and the log's id."""
    try:
        store = ObjectStore(url)
    except ValueError as error:
        raise CannotReadStore(url, str(error)) from error
    last = store.url.rpartition("/")[2]
    if _LOG_ID.fullmatch(last):
        return store.below(str(partition)), int(last, 16)
    logs = [name for name in store.folders() if _LOG_ID.fullmatch(name)]
    logs = [name for name in logs if str(partition) in store.folders(name)]
    if not logs:
        raise CannotReadStore(url, f"it has no segment of partition {partition}")
    if len(logs) > 1:
        raise CannotReadStore(url, f"it has several logs: add one of {', '.join(logs)} to the URL")
    return store.below(f"{logs[0]}/{partition}"), int(logs[0], 16)


def _is_part(each: StoredObject) -> bool:
    suffixes = (SEGMENT, INDEX, DAMAGE)
    return any(base_offset_of(each.name, suffix) is not None for suffix in suffixes)


def _copy(store: ObjectStore, each: StoredObject, folder: Path, url: str) -> None:
    """Copy an object; it is on disk when this returns."""
    target = folder / each.name
    try:
        size = store.download(each.name, target).size
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise CannotReadStore(url, error.strerror or str(error)) from error
    if size != each.size:
        raise CannotReadStore(url, f"{each.name} has {size} bytes, not {each.size}")
