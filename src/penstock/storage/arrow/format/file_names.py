"""Names of the files of a partition.

DATA/log/<partition>/00000000000000000000.arrows        a segment, by its base offset
                     00000000000000000000.index         its index
                     00000000000000000000.rows          its row index
                     00000000000000000000.damage.json   its damage
                     00000000000000000000.removed.json  removed topics, by the horizon
                     log.json                           the state of the log
                     topics.journal                     the journal of topics
                     topic-horizons.arrow               what `[[retention]]` has expired
                     last-messages.arrow                the record of last messages
                     session-numbers                    the next session number, see its module
DATA/quarantine/                                        bytes that recovery cut off
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = [
    "DAMAGE",
    "HORIZONS",
    "INDEX",
    "JOURNAL",
    "LAST_MESSAGES",
    "QUARANTINE",
    "REMOVED",
    "ROWS",
    "SEGMENT",
    "STATE",
    "TIER",
    "TIERED",
    "TIER_CACHE",
    "base_offset_of",
    "damage_path",
    "index_path",
    "partition_folder",
    "quarantine_folder",
    "removed_path",
    "rows_path",
    "segment_bases",
    "segment_path",
    "tier_cache_folder",
    "tiered_path",
]

SEGMENT: Final = ".arrows"
INDEX: Final = ".index"
ROWS: Final = ".rows"
DAMAGE: Final = ".damage.json"
TIERED: Final = ".tiered.json"
REMOVED: Final = ".removed.json"
STATE: Final = "log.json"
TIER: Final = "tier.json"
TIER_CACHE: Final = "tier-cache"
HORIZONS: Final = "topic-horizons.arrow"
LAST_MESSAGES: Final = "last-messages.arrow"
JOURNAL: Final = "topics.journal"
QUARANTINE: Final = "quarantine"

_NAME: Final = re.compile(r"(\d{20})(\.arrows|\.index|\.rows|\.(?:damage|tiered|removed)\.json)")


def partition_folder(data: Path, partition: int) -> Path:
    """Return the folder of a partition."""
    return data / "log" / str(partition)


def quarantine_folder(folder: Path) -> Path:
    """Return the quarantine folder of a partition."""
    return folder.parent.parent / QUARANTINE


def segment_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the segment that starts at an offset."""
    return folder / f"{base_offset:020}{SEGMENT}"


def index_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the index of a segment."""
    return folder / f"{base_offset:020}{INDEX}"


def rows_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the row index of a segment."""
    return folder / f"{base_offset:020}{ROWS}"


def damage_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the damage file of a segment."""
    return folder / f"{base_offset:020}{DAMAGE}"


def removed_path(folder: Path, horizon: int) -> Path:
    """Return the path of the record of messages that were removed below a horizon."""
    return folder / f"{horizon:020}{REMOVED}"


def segment_bases(names: Iterable[str], *, horizon: int) -> list[int]:
    """Return the base offsets of all segments of a folder, in order.

    Those below the horizon are expired; if no other is local, those that are still there count.
    """
    known = {SEGMENT: set[int](), TIERED: set[int]()}
    for name in names:
        match = _NAME.fullmatch(name)
        if match and match[2] in known:
            known[match[2]].add(int(match[1]))
    local = known[SEGMENT]
    kept = {base for base in local if base >= horizon} or local
    return sorted(kept | {base for base in known[TIERED] if base >= horizon})


def tiered_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the marker of a segment that is in an object store."""
    return folder / f"{base_offset:020}{TIERED}"


def tier_cache_folder(folder: Path) -> Path:
    """Return the folder for segments that were fetched from an object store."""
    return folder.parent.parent / TIER_CACHE


def base_offset_of(name: str, suffix: str) -> int | None:
    """Return the base offset in a file name, None if it has another suffix."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and match[2] == suffix else None
