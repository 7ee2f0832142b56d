"""Kinds of damage, and the file beside a segment that records it."""

import enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.storage.arrow.format.file_names import damage_path
from penstock.storage.files import Files

__all__ = ["Damage", "Fault", "load_damage", "save_damage"]


class Fault(enum.StrEnum):
    """Kinds of damage, as `penstock log verify` names them."""

    TORN = "torn"
    """The end of a segment that was being written when the system stopped. It has no message
    that was acknowledged as on disk."""
    DAMAGED = "damaged"
    """Bytes that were on disk and have changed."""
    HOLE = "hole"
    """Row groups between two others are missing."""
    BAD_HEAD = "bad head"
    """A segment without a valid head. Its row groups may be good."""
    BAD_END = "bad end"
    """A closed segment without a valid end. Its row groups may be good."""
    MISSING_SEGMENT = "missing segment"
    """A segment does not start where the one before it ends."""
    GAP = "gap"
    """Offsets of messages whose write failed: recorded, and not a loss."""
    STALE_INDEX = "stale index"
    """An index that is missing, damaged or of another segment; it is rebuilt."""
    BAD_JOURNAL = "bad journal"
    """A damaged line in the journal of topics."""
    BAD_STATE = "bad state"
    """log.json cannot be read, or contradicts the segments."""


class Damage(NamedTuple):
    """Damage in a segment: messages from `first_offset` up to `resumes_at` cannot be read.

    `segment` is the base offset of the segment, `position` and `length` are bytes in it. The range
    of offsets is empty if no message is affected.
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
    """Read the recorded damage of a segment; raise ValueError if the file is unreadable."""
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
    """Record the damage of a segment; its bytes stay in place."""
    entries = [
        _Entry(each.fault, each.position, each.length, each.first_offset, each.resumes_at,
               each.reason)
        for each in damage
    ]  # fmt: skip
    data = msgspec.json.format(msgspec.json.encode(_Document(entries)), indent=2)
    files.replace(damage_path(folder, segment), data + b"\n")
