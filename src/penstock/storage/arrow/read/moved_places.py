"""Finds messages again after their segment was replaced by one with merged row groups.

A reader may look up a row group in an index and read it later, also in another process such as a
task of Spark. Merged row groups have the same messages at other positions of the file.
"""

from penstock.storage.arrow.format.file_names import SEGMENT, base_offset_of
from penstock.storage.arrow.format.heads import read_head
from penstock.storage.arrow.format.index import Entry, Index
from penstock.storage.arrow.format.index_file import StaleIndex, load_index
from penstock.storage.arrow.read.catalog import Place
from penstock.storage.arrow.recover.walk import Good, walk
from penstock.storage.files import Files

__all__ = ["moved_places"]


def moved_places(files: Files, place: Place, end: int) -> list[Place]:
    """Return the row groups that now have the messages from a row group up to the offset `end`.

    The first and the last one may have other messages, too. The list is empty if the segment has no
    merged row groups, or if its row groups are those that the reader knows. Damaged row groups may
    be missing: the caller reports them. Raise OSError.
    """
    folder, base = place.path.parent, base_offset_of(place.path.name, SEGMENT)
    if base is None:
        raise ValueError(f"{place.path.name} is not a segment")
    first = read_head(files, folder, base, log_id=None, partition=int(folder.name))
    if first.head is None or first.head.last_crc is None:
        return []
    index = _index(files, place, base, head_size=first.head.size, head_crc=first.crc)
    start = index.at_offset(place.entry.base_offset)
    found: list[Entry] = []
    for number in range(start, len(index)):
        entry = index.entry(number)
        if entry.base_offset >= end:
            break
        found.append(entry)
    if found and found[0] == place.entry:
        return []
    return [Place(place.path, entry) for entry in found]


def _index(files: Files, place: Place, base: int, *, head_size: int, head_crc: int) -> Index:
    """Return the index of the segment as it is now.

    The index file is replaced a moment after the segment; until then the segment is read.
    """
    try:
        index, summary = load_index(files, place.path.parent, base)
        if summary.head_crc == head_crc and summary.segment_size == files.size(place.path):
            return index
    except StaleIndex:
        pass
    index = Index(base)
    steps = walk(files, place.path, position=head_size, base_offset=base, previous_crc=None)
    for step in steps:
        if isinstance(step, Good):
            index.add_row_group(step.data, step.row_group, step.position)
    return index
