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
    Fault.TORN: "an incomplete write; nothing in it was acknowledged as on disk, "
    "and the broker truncates it when it starts",
    Fault.DAMAGED: "the bytes on disk have changed since they were written: check the disk, "
    "and restore the segment from a backup",
    Fault.HOLE: "row groups are missing: restore the segment from a backup",
    Fault.BAD_HEAD: "the messages after it are checked separately",
    Fault.BAD_END: "its messages are checked separately",
    Fault.MISSING_SEGMENT: "restore the file from a backup",
    Fault.GAP: "publishers got an error for these messages; nothing is lost",
    Fault.STALE_INDEX: "no message is lost; the broker rebuilds it when it needs it",
    Fault.BAD_JOURNAL: "no message is lost; topics without messages may be unknown after a start",
    Fault.BAD_STATE: "no message is lost; the broker rebuilds it when it starts",
})  # fmt: skip


def finding(damage: Damage) -> str:
    """Return a finding as a line of text."""
    lost = ""
    if damage.resumes_at > damage.first_offset:
        verb = "were never stored" if damage.fault is Fault.GAP else "cannot be read"
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
