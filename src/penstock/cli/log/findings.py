"""Findings of a log as text: the place, the fault, and what it means."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import JOURNAL, SEGMENT, STATE

__all__ = ["NO_FAULT", "finding", "finding_fields"]

NO_FAULT: Final = frozenset({Fault.TORN, Fault.GAP})
"""Findings that are no faults: an unfinished write at the end, and declared gaps."""

_MEANING: Final[Mapping[Fault, str]] = MappingProxyType({
    Fault.TORN: "not written to its end; nothing in it was acknowledged as on disk, "
    "and the broker cuts it off when it starts",
    Fault.DAMAGED: "it was on disk and is not what was written: look at the disk, "
    "or bring the segment back from a copy",
    Fault.HOLE: "what stood here is gone: bring the segment back from a copy",
    Fault.BAD_HEAD: "the messages behind it are checked by themselves",
    Fault.BAD_END: "its messages are checked by themselves",
    Fault.MISSING_SEGMENT: "bring the file back from a copy",
    Fault.GAP: "publishers were told so; nothing is lost",
    Fault.STALE_INDEX: "no message is lost; the broker makes it again when it needs it",
    Fault.BAD_JOURNAL: "no message is lost; topics without messages may be unknown after a start",
    Fault.BAD_STATE: "no message is lost; the broker makes it again when it starts",
})  # fmt: skip


def finding(damage: Damage) -> str:
    """Return a finding as a line of text."""
    lost = ""
    if damage.resumes_at > damage.first_offset:
        verb = "were never kept" if damage.fault is Fault.GAP else "cannot be read"
        lost = f" messages {damage.first_offset} to {damage.resumes_at - 1} {verb};"
    return f"{damage.fault}: {_where(damage)}: {damage.reason};{lost} {_MEANING[damage.fault]}"


def finding_fields(damage: Damage) -> dict[str, Any]:
    """Return a finding as the fields of a JSON object."""
    fields = {**damage._asdict(), "fault": str(damage.fault), "file": _file(damage)}
    return {**fields, "serious": damage.fault not in NO_FAULT, "meaning": _MEANING[damage.fault]}


def _file(damage: Damage) -> str:
    match damage.fault:
        case Fault.BAD_STATE:
            return STATE
        case Fault.BAD_JOURNAL:
            return JOURNAL
    return f"{damage.segment:020}{SEGMENT}"


def _where(damage: Damage) -> str:
    if damage.fault is Fault.MISSING_SEGMENT:
        return f"before {_file(damage)}"
    if damage.length:
        return f"{_file(damage)} at byte {damage.position}, {damage.length} bytes"
    return f"{_file(damage)} at byte {damage.position}" if damage.position else _file(damage)
