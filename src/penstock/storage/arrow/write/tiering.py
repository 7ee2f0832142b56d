"""Tiering: copies closed segments to an object store, and deletes local copies and objects.

The steps for one segment, each of which may be the last one before the process is killed:

1. upload the segment, its index and its damage file;
2. check their sizes in the store, and write the marker: now the segment is tiered;
3. above the local limits, check the sizes again and remove the local segment: its index stays,
   and so does its row index, which is not uploaded;
4. when retention has moved the horizon past it, delete the objects, then the marker.

A step that was interrupted is done again. Names of objects are those of the files, so a second
upload replaces the first.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from penstock.limits import (
    TIER_RETRY_SECONDS_MAX,
    TIER_SECONDS,
    TIER_STOP_SECONDS_MAX,
)
from penstock.ports import TierStatus
from penstock.storage.arrow.format.file_names import (
    DAMAGE,
    INDEX,
    SEGMENT,
    TIERED,
    base_offset_of,
    damage_path,
    index_path,
    rows_path,
    segment_path,
    tiered_path,
)
from penstock.storage.arrow.format.heads import read_head
from penstock.storage.arrow.format.index_file import StaleIndex, load_summary
from penstock.storage.arrow.format.tiered import TieredSegment, load_markers, save_marker
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.arrow.read.segment_cache import SegmentCache, save_cache_limit
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.write.retention import expired
from penstock.storage.files import Files
from penstock.storage.object_store import Copied, ObjectStore
from penstock.storage.options import TierOptions

__all__ = ["Tiering"]

log = structlog.get_logger("penstock.log")

_SUFFIXES: Final = (SEGMENT, INDEX, DAMAGE)


class Tiering:
    """Moves segments between the local disk and the object store, in a thread of its own.

    Only segments with a valid index are uploaded. A segment that was abandoned after a failure of
    the disk has none until the log is opened again.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        catalog: Catalog,
        options: TierOptions,
        *,
        log_id: int,
        partition: int,
        horizon: Callable[[], int],
        is_ready: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`horizon` returns the horizon that is stored in log.json.

        A closed segment is uploaded once `is_ready` returns True for its base offset.
        """
        self._is_ready = is_ready
        self._files = files
        self._folder = folder
        self._catalog = catalog
        self._options = options
        self._log_id = log_id
        self._partition = partition
        self._url = f"{options.url.rstrip('/')}/{log_id:012x}/{partition}"
        self._horizon = horizon
        names = files.names(folder)
        found = load_markers(files, folder, names)
        self._tiered = {base: each for base, each in found.items() if each.log_id == log_id}
        self._marked = _bases(names, TIERED)  # those that cannot be read too
        self._local = _bases(names, SEGMENT)
        self._swept = False
        self._overdue = 0
        self._uploads = 0
        self._failures = 0
        self._last_upload_us: int | None = None
        self._problem: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-tiering", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an upload that is not complete is left out."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(TIER_STOP_SECONDS_MAX)

    def status(self) -> TierStatus:
        """Return the state at this moment; any thread may call."""
        tiered = dict(self._tiered)
        closed = self._closed()
        waiting = [each for each in closed if each.base_offset not in tiered]
        gone = tiered.keys() - self._local
        local = [each for each in closed if each.base_offset not in gone]
        return TierStatus(
            url=self._options.url,
            segments=len(tiered),
            size=sum(each.size for each in tiered.values()),
            waiting_segments=len(waiting),
            waiting_bytes=sum(each.size for each in waiting),
            local_segments=len(local),
            local_bytes=sum(each.size for each in local),
            overdue_segments=self._overdue,
            uploads=self._uploads,
            failures=self._failures,
            last_upload_us=self._last_upload_us,
            problem=self._problem,
        )

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        wait = 0.0
        while not self._stopping.wait(wait):
            try:
                self.step()
            except Exception as error:  # noqa: BLE001  (the thread must continue)
                if self._stopping.is_set():
                    return
                self._fail(error)
                wait = min(max(2 * wait, TIER_SECONDS), TIER_RETRY_SECONDS_MAX)
                continue
            if self._problem is not None:
                log.info("object store available again", url=self._options.url)
                self._problem = None
            wait = TIER_SECONDS

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._problem = str(error).splitlines()[0] if str(error) else repr(error)
        status = self.status()
        unexpected = None if isinstance(error, OSError) else error
        log.warning(
            "object store not reached",
            url=self._options.url,
            error=self._problem,
            waiting_segments=status.waiting_segments,
            waiting_bytes=status.waiting_bytes,
            local_bytes=status.local_bytes,
            exc_info=unexpected,
        )

    def step(self) -> None:
        """Do all that is due; raise OSError if the store or the disk fails."""
        save_cache_limit(self._files, self._folder, self._options.cache_bytes_max)
        try:
            self._upload_closed()
            self._delete_expired()
            self._sweep()
        finally:
            self._remove_local()

    def _closed(self) -> list[Segment]:
        return [each for each in self._catalog.segments() if isinstance(each, Segment)]

    # --- Uploads

    def _upload_closed(self) -> None:
        for segment in self._closed():
            if self._stopping.is_set():
                return
            base = segment.base_offset
            if base in self._tiered or not self._is_ready(base):
                continue
            with self._catalog.claimed(base) as is_free:
                try:
                    if is_free:
                        self._upload(segment)
                except FileNotFoundError:
                    if base >= self._horizon():
                        raise

    def _upload(self, segment: Segment) -> None:
        """Upload a segment and write its marker."""
        base = segment.base_offset
        path = segment_path(self._folder, base)
        try:
            summary = load_summary(self._files, self._folder, base)
        except StaleIndex:
            return
        if summary.segment_size != path.stat().st_size:
            return
        first = read_head(
            self._files, self._folder, base, log_id=self._log_id, partition=self._partition
        )
        if first.head is None:
            return  # recovery has reported it; the segment stays local
        store = ObjectStore(self._url)
        damaged = damage_path(self._folder, base).exists()
        copied = self._copy(store, path)
        index = self._copy(store, index_path(self._folder, base))
        if damaged:
            self._copy(store, damage_path(self._folder, base))
        marker = TieredSegment(
            url=self._url,
            log_id=self._log_id,
            partition=self._partition,
            base_offset=base,
            end_offset=segment.end_offset,
            last_us=segment.last_us,
            last_crc=summary.last_crc,
            size=copied.size,
            sha256=copied.sha256,
            index_size=index.size,
            index_sha256=index.sha256,
            damaged=damaged,
            head_size=first.head.size,
            head_crc=first.crc,
            previous_end=first.head.previous_end,
            previous_crc=first.head.previous_crc,
        )
        save_marker(self._files, self._folder, marker)
        self._tiered[base] = marker
        self._uploads += 1
        self._last_upload_us = time.time_ns() // 1000
        log.info("segment uploaded", segment=base, size=copied.size, url=self._url)

    def _copy(self, store: ObjectStore, path: Path) -> Copied:
        copied = store.upload(path, path.name, lambda: not self._stopping.is_set())
        found = store.size(path.name)
        if found != copied.size:
            raise OSError(5, f"{path.name} has {found} bytes in the store, not {copied.size}")
        return copied

    # --- Local copies

    def _remove_local(self) -> None:
        """Remove local segments above the local limits, if they are in the store.

        The last closed segment stays: it tells where the log ends.
        """
        local = [each for each in self._closed() if self._is_local(each.base_offset)]
        self._local = {each.base_offset for each in local}
        bounds = self._options.local
        if not bounds.bounded:
            return
        active = [each for each in self._catalog.segments() if isinstance(each, ActiveSegment)]
        age = bounds.age_seconds_max
        count = expired(
            local,
            active_bytes=sum(each.size for each in active),
            now_us=time.time_ns() // 1000,
            age_us_max=None if age is None else int(age * 1_000_000),
            bytes_max=bounds.bytes_max,
        )
        due = [each.base_offset for each in local[:count]]
        ready = [base for base in due if base in self._tiered]
        self._count_overdue(len(due) - len(ready))
        for base in ready:
            if self._stopping.is_set():
                return
            if self._is_complete(self._tiered[base]):
                self._files.remove(segment_path(self._folder, base))
                self._local.discard(base)
                log.info("local segment removed", segment=base, url=self._url)
        if ready:
            self._files.sync_folder(self._folder)

    def _count_overdue(self, count: int) -> None:
        if count and not self._overdue:
            log.warning(
                "local segments above the limit are not in the object store yet",
                segments=count,
                url=self._options.url,
            )
        self._overdue = count

    def _is_local(self, base: int) -> bool:
        return segment_path(self._folder, base).exists()

    def _is_complete(self, segment: TieredSegment) -> bool:
        """Check that the objects are in the store; remove the marker if they are not.

        Then the segment is uploaded again.
        """
        base = segment.base_offset
        store = ObjectStore(segment.url)
        if (
            store.size(segment_path(self._folder, base).name) == segment.size
            and store.size(index_path(self._folder, base).name) == segment.index_size
        ):
            return True
        log.warning("segment is missing in the object store", segment=base, url=segment.url)
        self._files.remove(tiered_path(self._folder, base))
        del self._tiered[base]
        return False

    # --- Retention

    def _delete_expired(self) -> None:
        """Delete the objects of segments below the horizon, then their markers."""
        horizon = self._horizon()
        gone = sorted(base for base in self._tiered if base < horizon)
        for base in gone:
            segment = self._tiered[base]
            store = ObjectStore(segment.url)
            for suffix in _SUFFIXES:
                store.delete(f"{base:020}{suffix}")
            self._files.remove(tiered_path(self._folder, base))
            self._files.remove(index_path(self._folder, base))
            self._files.remove(rows_path(self._folder, base))
            self._files.remove(damage_path(self._folder, base))
            del self._tiered[base]
            SegmentCache.of(self._folder).forget(segment)
        if gone:
            self._files.sync_folder(self._folder)
            log.info("old segments removed from the object store", segments=len(gone))

    def _sweep(self) -> None:
        """Delete objects below the horizon that have no marker, once after each start.

        A process may be killed between an upload and its marker, and the segment expire then.
        """
        if self._swept:
            return
        store = ObjectStore(self._url)
        for each in store.objects():
            bases = (base_offset_of(each.name, suffix) for suffix in _SUFFIXES)
            base = next((found for found in bases if found is not None), None)
            if base is not None and base < self._horizon() and base not in self._marked:
                store.delete(each.name)
        self._swept = True


def _bases(names: Iterable[str], suffix: str) -> set[int]:
    return {base for name in names if (base := base_offset_of(name, suffix)) is not None}
