"""Keeps the record of removed topics while retention removes segments."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.errors import LogError
from penstock.limits import REMOVED_ROW_GROUPS_READ_MAX, REMOVED_TOPICS_MAX
from penstock.storage.arrow.format.damage import Damage
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import StaleIndex, load_index
from penstock.storage.arrow.format.removed_topics import (
    RemovedTopics,
    load_removed,
    save_removed,
)
from penstock.storage.arrow.format.segment import HEAD_BYTES_MAX, BadHead, parse_head
from penstock.storage.arrow.read.pieces import Span, read_pieces
from penstock.storage.files import Files

__all__ = ["RemovalRecord"]

log = structlog.get_logger("penstock.log")


class RemovalRecord:
    """The record of a log that this process writes. Retention adds to it, in the writer thread."""

    def __init__(self, files: Files, folder: Path, *, horizon: int) -> None:
        self._files = files
        self._folder = folder
        self.current = load_removed(files, folder, horizon) or RemovedTopics(horizon, horizon)
        """Messages that were removed below the horizon of log.json; any thread may read it."""

    def save(
        self, gone: Sequence[int], horizon: int, damage: Sequence[Damage] = ()
    ) -> RemovedTopics:
        """Return the record with the topics of segments that are about to be removed.

        It is on disk when this returns, and `current` when log.json has the horizon. Raise OSError.
        """
        before = self.current
        known_from = before.known_from
        for each in damage:
            if each.first_offset < horizon:
                known_from = max(known_from, min(each.resumes_at, horizon))
        ends: dict[str, int] = {}
        for end, names in self._newest_first(gone, horizon):
            if end <= known_from:
                break
            if names is None or not self._fits(ends, names):
                known_from = end
                break
            for name in names:
                ends.setdefault(name, end)
        removed = RemovedTopics(horizon, known_from, before.ends | ends).bounded()
        save_removed(self._files, self._folder, removed, before=before.horizon)
        return removed

    @staticmethod
    def _fits(ends: Mapping[str, int], names: Sequence[str]) -> bool:
        """Return whether the record has room for the topics of one more row group.

        A record that is full ends the search: a segment with many topics in each row group would
        take seconds to read, while commits wait.
        """
        return len(ends) + len(names) <= REMOVED_TOPICS_MAX or (
            len(ends.keys() | set(names)) <= REMOVED_TOPICS_MAX
        )

    def _newest_first(
        self, gone: Sequence[int], horizon: int
    ) -> Iterator[tuple[int, Sequence[str] | None]]:
        """Yield the ends of row groups, the last first, with their topics, None if not known.

        Row groups all of whose topics are in later ones of their segment may be left out.
        """
        for base in reversed(gone):
            try:
                index, _ = load_index(self._files, self._folder, base)
            except (StaleIndex, LogError) as error:
                log.warning("topics of a removed segment not known", segment=base, error=str(error))
                yield horizon, None
                return
            if not _is_whole(index):
                yield index.end_offset, None
                return
            left = REMOVED_ROW_GROUPS_READ_MAX
            is_merged = self._is_merged(base)
            for number, listed in index.last_row_groups():
                entry = index.entry(number)
                end = entry.base_offset + entry.count
                found: Mapping[str, int] | None = None
                if left and (listed is None or is_merged):
                    left -= 1
                    found = self._read_ends(index, number)
                if found is None or not is_merged:
                    yield end, listed if found is None else list(found)
                    continue
                wanted = found.keys() if listed is None else found.keys() & set(listed)
                for name in sorted(wanted, key=found.__getitem__, reverse=True):
                    yield found[name], [name]

    def _is_merged(self, base: int) -> bool:
        """Return whether a local segment has merged row groups.

        Positions of streams may be at the ends of the row groups before the merge. So the exact
        ends of topics are read from merged row groups.
        """
        path = segment_path(self._folder, base)
        if not path.exists():  # it is only in an object store: it would be fetched
            return False
        try:
            return parse_head(self._files.read(path, 0, HEAD_BYTES_MAX)).last_crc is not None
        except (OSError, BadHead, LogError):
            return False

    def _read_ends(self, index: Index, number: int) -> Mapping[str, int] | None:
        """Return the topics of a row group, each with the end of its messages; None if unknown.

        A segment that is only in an object store is not fetched.
        """
        base = index.base_offset
        if not segment_path(self._folder, base).exists():
            return None
        entry = index.entry(number)
        ends: dict[str, int] = {}
        try:
            for batch in read_pieces(
                self._folder,
                [Span(base, index, number, number + 1).part(number, number + 1)],
                first=entry.base_offset,
                last=entry.base_offset + entry.count,
                columns=["topic", "offset"],
            ):
                topics = batch.column("topic")
                rows = pa.table({"id": topics.indices, "offset": batch.column("offset")})
                last = rows.group_by("id").aggregate([("offset", "max")])
                for name, offset in zip(
                    pc.take(topics.dictionary, last.column("id")).to_pylist(),
                    last.column("offset_max").to_pylist(),
                    strict=True,
                ):
                    ends[name] = max(offset + 1, ends.get(name, 0))
        except (LogError, OSError):
            return None
        return ends


def _is_whole(index: Index) -> bool:
    """Return whether the index has all messages of its segment: none of them is unreadable."""
    if not len(index):
        return index.base_offset == index.end_offset
    last = index.entry(len(index) - 1)
    return (
        index.entry(0).base_offset == index.base_offset
        and last.base_offset + last.count == index.end_offset
        and not index.missing
    )
