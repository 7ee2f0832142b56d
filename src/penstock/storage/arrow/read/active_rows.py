"""The entries of a row index for row groups of the active segment, in memory.

The row index of a segment is written when it is closed. Until then a thread computes the sections
of its row groups, so that replay of a rare topic does not read them whole.
"""

import threading
from collections.abc import Sequence

from penstock.storage.arrow.format.index import Entry
from penstock.storage.arrow.format.row_index_file import ListedRow, Section, find_in_section

__all__ = ["ActiveRows"]


_Key = tuple[int, int, int]
"""Base offset, count and size of a row group: one that was rewritten has another size."""


class ActiveRows:
    """Sections of the active segment, and of closed ones without a row index. Any thread may call.

    Further sections are refused when all together would exceed `bytes_max`.
    """

    def __init__(self, *, bytes_max: int = 0) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()
        self._sections: dict[int, dict[_Key, Section]] = {}
        self._refused: set[int] = set()

    def add(self, segment: int, entry: Entry, section: Section) -> bool:
        """Add the section of a row group of a segment; return whether there is room for more."""
        size = _size(section)
        with self._lock:
            if segment in self._refused or self._bytes + size > self._bytes_max:
                return False
            self._sections.setdefault(segment, {})[_key(entry)] = section
            self._bytes += size
        return True

    def section(self, segment: int, entry: Entry) -> Section | None:
        """Return the section of a row group, None if it is not here."""
        found = self._sections.get(segment)
        return None if found is None else found.get(_key(entry))

    def find(
        self, segment: int, entry: Entry, hashes: Sequence[int]
    ) -> tuple[tuple[int, ...], list[list[ListedRow]]] | None:
        """Return what `RowIndex.find` returns; None also if the row group is not here."""
        section = self.section(segment, entry)
        return None if section is None else find_in_section(section, hashes)

    def drop(self, segment: int) -> None:
        """Drop the sections of a segment: it has a row index, or needs none."""
        with self._lock:
            for section in self._sections.pop(segment, {}).values():
                self._bytes -= _size(section)
            self._refused.discard(segment)

    def refuse(self, segment: int) -> None:
        """Drop the sections of a segment of which one is wrong, and refuse further ones."""
        if segment in self._sections:
            self.drop(segment)
            with self._lock:
                self._refused.add(segment)

    def segments(self) -> list[int]:
        """Return the base offsets of the segments that have sections."""
        with self._lock:
            return list(self._sections)


def _key(entry: Entry) -> _Key:
    return entry.base_offset, entry.count, entry.size


def _size(section: Section) -> int:
    return len(section.first) + sum(map(len, section.buckets))
