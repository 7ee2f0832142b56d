"""Reading groups back, checked, in threads of their own: the event loop never waits for a disk."""

from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon
from penstock.limits import LOG_READERS
from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.segment import (
    HEAD_BYTES_MAX,
    TIMESTAMPS,
    BadGroup,
    BadHead,
    Group,
    check_group,
    parse_group,
    parse_head,
)
from penstock.storage.arrow.read.catalog import Catalog, Place
from penstock.storage.schema import KINDS, PROTOCOLS

__all__ = ["GroupReader", "StoredGroup", "read_group"]

log = structlog.get_logger("penstock.log")

_WORDS_KEPT_MAX: Final = 1024
"""Segments whose dictionaries are remembered."""


class StoredGroup:
    """A group in memory; a `ports.Stored`."""

    __slots__ = ("base_offset", "count", "data", "group", "words")

    def __init__(self, data: bytes, group: Group, words: stored.SegmentWords | None = None) -> None:
        self.data = data
        self.group = group
        self.words = words or stored.SegmentWords(PROTOCOLS, KINDS)
        self.base_offset = group.base_offset
        self.count = group.count

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """See ports.Stored."""
        group = self.group
        stored.load(
            batch,
            topics,
            self.data,
            group.layout,
            group.topic_layout,
            group.sender_layout,
            self.words,
            count=group.count,
        )

    def row_at_time(self, timestamp_us: int) -> int:
        """Return the first row that was taken at or after a time, or how many rows there are."""
        start, length = self.group.layout[2 * TIMESTAMPS : 2 * TIMESTAMPS + 2]
        times = array("q")
        times.frombytes(self.data[start : start + length][: 8 * self.count])
        return next((row for row, taken in enumerate(times) if taken >= timestamp_us), self.count)


def read_group(files: Files, place: Place, words: stored.SegmentWords | None = None) -> StoredGroup:
    """Read a group and check it; raise LogDamaged if it is not what was written.

    `words` are those of its segment, which are needed to load it into a batch.
    """
    entry = place.entry
    try:
        data = files.read(place.path, entry.position, entry.size)
        group = parse_group(data)
    except (OSError, BadGroup) as error:
        reason = f"{place.path.name} at {entry.position}: {error}"
        raise LogDamaged(entry.base_offset, entry.base_offset + entry.count, reason) from error
    if group.base_offset != entry.base_offset or not check_group(data, group):
        reason = f"{place.path.name} at {entry.position}: the checksum is wrong"
        raise LogDamaged(entry.base_offset, entry.base_offset + entry.count, reason)
    return StoredGroup(data, group, words)


class GroupReader:
    """Reads for callers that must not wait: what they asked for is `post`ed to their thread."""

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        post: Callable[[Callable[[], None]], None],
        *,
        threads: int = LOG_READERS,
    ) -> None:
        self._files = files
        self._catalog = catalog
        self._post = post
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-read")
        self._words: dict[Path, stored.SegmentWords] = {}

    def fetch(self, offset: int, end: int, then: Callable[[StoredGroup | LogError], None]) -> None:
        """Read the group that has `offset`, or the next; see ports.LogReader."""
        self._threads.submit(self._fetch, offset, end, then)

    def find_time(
        self, timestamp_us: int, end: int, then: Callable[[int | LogError], None]
    ) -> None:
        """Find the first offset at or after a time; see ports.LogReader."""
        self._threads.submit(self._find_time, timestamp_us, end, then)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _words_of(self, path: Path) -> stored.SegmentWords:
        """Return the dictionaries of a segment's head; those of today if it cannot be read."""
        words = self._words.get(path)
        if words is None:
            try:
                head = parse_head(self._files.read(path, 0, HEAD_BYTES_MAX), path=str(path))
            except (OSError, BadHead):  # recovery has reported it
                return stored.SegmentWords(PROTOCOLS, KINDS)
            if len(self._words) >= _WORDS_KEPT_MAX:
                self._words.clear()
            words = self._words[path] = stored.SegmentWords(head.protocols, head.kinds)
        return words

    def _fetch(self, offset: int, end: int, then: Callable[[StoredGroup | LogError], None]) -> None:
        result: StoredGroup | LogError
        try:
            place = self._catalog.place(offset, end)
            result = read_group(self._files, place, self._words_of(place.path))
        except LogError as error:
            result = error
        except Exception as error:
            log.exception("reading failed", offset=offset)
            result = LogDamaged(offset, end, str(error))
        horizon = self._catalog.horizon
        if isinstance(result, LogDamaged) and offset < horizon:
            result = OffsetBelowHorizon(offset, horizon)  # it was removed meanwhile
        self._post(lambda: then(result))

    def _find_time(
        self, timestamp_us: int, end: int, then: Callable[[int | LogError], None]
    ) -> None:
        result: int | LogError = end
        try:
            place = self._catalog.place_of_time(timestamp_us)
            if place is not None:
                found = read_group(self._files, place)
                result = min(found.base_offset + found.row_at_time(timestamp_us), end)
        except LogError as error:
            result = error
        except Exception as error:
            log.exception("finding a time failed", timestamp_us=timestamp_us)
            result = LogDamaged(end, end, str(error))
        self._post(lambda: then(result))
