"""How the files of a partition are named.

DATA/log/<partition>/00000000000000000000.arrows        a segment, by its base offset
                     00000000000000000000.index         what its groups hold
                     00000000000000000000.damage.json   what of it cannot be read
                     log.json                           what outlives the segments
                     topics.journal                     topics that were made
DATA/quarantine/                                        what was cut off and is not only torn
"""

import re
from pathlib import Path
from typing import Final

__all__ = [
    "DAMAGE",
    "INDEX",
    "JOURNAL",
    "QUARANTINE",
    "SEGMENT",
    "STATE",
    "base_offset_of",
    "damage_path",
    "index_path",
    "partition_folder",
    "quarantine_folder",
    "segment_path",
]

SEGMENT: Final = ".arrows"
INDEX: Final = ".index"
DAMAGE: Final = ".damage.json"
STATE: Final = "log.json"
JOURNAL: Final = "topics.journal"
QUARANTINE: Final = "quarantine"

_NAME: Final = re.compile(r"(\d{20})(\.arrows|\.index|\.damage\.json)")


def partition_folder(data: Path, partition: int) -> Path:
    """Return where the log of a partition is."""
    return data / "log" / str(partition)


def quarantine_folder(folder: Path) -> Path:
    """Return where bytes go that a partition's log no longer has a place for."""
    return folder.parent.parent / QUARANTINE


def segment_path(folder: Path, base_offset: int) -> Path:
    """Return where the segment is that starts at an offset."""
    return folder / f"{base_offset:020}{SEGMENT}"


def index_path(folder: Path, base_offset: int) -> Path:
    """Return where the index of a segment is."""
    return folder / f"{base_offset:020}{INDEX}"


def damage_path(folder: Path, base_offset: int) -> Path:
    """Return where it says what of a segment cannot be read."""
    return folder / f"{base_offset:020}{DAMAGE}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """Return the base offset in the name of a segment's file, None if the name is another's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and match[2] == suffix else None
