"""A cache on the local disk for segments that are in an object store.

All processes of a machine that read a log share the cache. A copy has its final name when it is
complete and checked. The least recently used copies are deleted first.
"""

import contextlib
import os
import stat
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import structlog

from penstock.errors import LogDamaged, TierUnavailable
from penstock.limits import TIER_CACHE_BYTES_MAX, TIER_RETRY_SECONDS
from penstock.storage.arrow.format.file_names import SEGMENT, TIER, tier_cache_folder
from penstock.storage.arrow.format.tiered import TieredSegment
from penstock.storage.files import TEMPORARY, Files
from penstock.storage.object_store import ObjectStore

__all__ = ["SegmentCache", "save_cache_limit"]

log = structlog.get_logger("penstock.log")

_ABANDONED_SECONDS: Final = 3600.0
"""Age of an unfinished copy of a process that was killed."""


class _Settings(msgspec.Struct, frozen=True):
    cache_bytes_max: int


def save_cache_limit(files: Files, folder: Path, bytes_max: int) -> None:
    """Write the limit of the cache for all readers of a log, into `tier.json`."""
    data = msgspec.json.encode(_Settings(bytes_max)) + b"\n"
    with contextlib.suppress(OSError):
        if files.read(folder / TIER, 0, len(data) + 1) == data:
            return
    files.replace(folder / TIER, data)


class SegmentCache:
    """The cache of one partition in this process. Any thread may call."""

    _caches: Final[dict[Path, "SegmentCache"]] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._failed: dict[str, float] = {}
        """When each store failed last."""

    @classmethod
    def of(cls, folder: Path) -> "SegmentCache":
        """Return the cache of a partition's folder."""
        return cls._caches.setdefault(folder, cls(folder))

    def fetch(self, segment: TieredSegment, path: Path) -> Path:
        """Return a copy of a segment or its index, `path`; fetch it if there is none.

        Raise TierUnavailable, LogDamaged or FileNotFoundError.
        """
        cache = self._cache_folder()
        copy = cache / f"{segment.log_id:012x}-{segment.partition}-{path.name}"
        if copy.exists():
            return copy
        with self._locks[path.name]:
            if not copy.exists():
                self._check_failed(segment)
                self._download(segment, path, copy)
                self._make_room(cache, copy)
        self._locks.pop(path.name, None)
        return copy

    def forget(self, segment: TieredSegment) -> None:
        """Delete the copies of a segment that was deleted from its store."""
        name = f"{segment.log_id:012x}-{segment.partition}-{segment.base_offset:020}.*"
        for copy in tier_cache_folder(self._folder).glob(name):
            copy.unlink(missing_ok=True)

    # --- Fetching

    def _check_failed(self, segment: TieredSegment) -> None:
        """Raise TierUnavailable at once for a short time after a failure."""
        if time.monotonic() - self._failed.get(segment.url, float("-inf")) < TIER_RETRY_SECONDS:
            raise TierUnavailable(segment.base_offset)

    def _download(self, segment: TieredSegment, path: Path, copy: Path) -> None:
        temporary = copy.with_name(f"{copy.name}.{uuid4().hex}{TEMPORARY}")
        try:
            try:
                copied = ObjectStore(segment.url).download(path.name, temporary)
            except FileNotFoundError:
                raise FileNotFoundError(2, "not in the object store", str(path)) from None
            except OSError as error:
                self._failed[segment.url] = time.monotonic()
                log.warning(
                    "segment not fetched",
                    segment=segment.base_offset, url=segment.url, error=str(error),
                )  # fmt: skip
                raise TierUnavailable(segment.base_offset) from error
            self._failed.pop(segment.url, None)
            expected = segment.sha256 if path.suffix == SEGMENT else segment.index_sha256
            if copied.sha256 != expected:
                reason = f"{path.name} in the object store is not what was uploaded"
                raise LogDamaged(segment.base_offset, segment.end_offset, reason)
            temporary.replace(copy)
        finally:
            temporary.unlink(missing_ok=True)

    # --- The folder

    def _cache_folder(self) -> Path:
        """Return the folder of the cache; one of this user if the log's cannot be written."""
        folder = tier_cache_folder(self._folder)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
        own = Path(tempfile.gettempdir()) / f"penstock-{folder.name}-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(13, "it belongs to another user", str(own))
        return own

    def _make_room(self, cache: Path, newest: Path) -> None:
        """Delete the least recently used copies above the limit, except the newest."""
        found = []
        for each in cache.iterdir():
            with contextlib.suppress(FileNotFoundError):
                state = each.stat()
                if each.name.endswith(TEMPORARY):
                    if time.time() - state.st_mtime > _ABANDONED_SECONDS:
                        each.unlink()
                    continue
                found.append((state.st_mtime, state.st_size, each))
        left = sum(size for _, size, _ in found) - self._bytes_max()
        for _, size, each in sorted(found):
            if left <= 0:
                return
            if each != newest:
                each.unlink(missing_ok=True)
                left -= size

    def _bytes_max(self) -> int:
        try:
            data = (self._folder / TIER).read_bytes()
            return msgspec.json.decode(data, type=_Settings).cache_bytes_max
        except (OSError, msgspec.MsgspecError):
            return TIER_CACHE_BYTES_MAX
