"""What can be wrong with a log, and the file beside a segment that remembers it."""

import enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.file_names import damage_path

__all__ = ["Damage", "Fault", "load_damage", "save_damage"]


class Fault(enum.StrEnum):
    """Kinds of findings, by the names that `penstock log verify` shows."""

    TORN = "torn"
    """The end of a segment that was being written when the system stopped. Nothing that was
    acknowledged as on disk is in it."""
    DAMAGED = "damaged"
    """Bytes that were on disk and are not what was written."""
    HOLE = "hole"
    """Groups that stood between two others are gone."""
    BAD_HEAD = "bad head"
    """A segment does not start as it should. Its groups may be fine."""
    BAD_END = "bad end"
    """A segment that was closed does not end as it should. Its groups may be fine."""
    MISSING_SEGMENT = "missing segment"
    """A segment does not start where the one before it ends."""
    GAP = "gap"
    """Offsets that were given to messages whose write failed: declared, and no loss."""
    STALE_INDEX = "stale index"
    """An index that is not its segment's, is damaged or is missing; it is made again."""
    BAD_JOURNAL = "bad journal"
    """A line in the list of topics is not what was written."""
    BAD_STATE = "bad state"
    """log.json cannot be read, or contradicts the segments."""


class Damage(NamedTuple):
    """Messages from `first_offset` up to `resumes_at` cannot be read, or something else is wrong.

    `segment` is the base offset of the segment, `position` and `length` the bytes in it.
    """

    fault: Fault
    segment: int
    position: int
    length: int
    first_offset: int
    resumes_at: int
    reason: str


class _Entry(msgspec.Struct, frozen=True):
    fault: Fault
    position: int
    length: int
    first_offset: int
    resumes_at: int
    reason: str


class _Document(msgspec.Struct, frozen=True):
    damage: list[_Entry]


def load_damage(files: Files, folder: Path, segment: int) -> list[Damage]:
    """Return what is known to be wrong with a segment; raise ValueError if that is unreadable."""
    path = damage_path(folder, segment)
    document = msgspec.json.decode(files.read(path, 0, files.size(path)), type=_Document)
    return [
        Damage(
            fault=each.fault,
            segment=segment,
            position=each.position,
            length=each.length,
            first_offset=each.first_offset,
            resumes_at=each.resumes_at,
            reason=each.reason,
        )
        for each in document.damage
    ]


def save_damage(files: Files, folder: Path, segment: int, damage: list[Damage]) -> None:
    """Write down what is wrong with a segment; the bytes themselves stay where they are."""
    entries = [
        _Entry(each.fault, each.position, each.length, each.first_offset, each.resumes_at,
               each.reason)
        for each in damage
    ]  # fmt: skip
    data = msgspec.json.format(msgspec.json.encode(_Document(entries)), indent=2)
    files.replace(damage_path(folder, segment), data + b"\n")
