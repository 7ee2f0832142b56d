"""Findings in a capture as lines of text or of JSON."""

import json as json_format
from collections.abc import Iterable, Sequence

from penstock.cli.common.text import shown, text_of
from penstock.decode import Field, Finding, Frame, Heading, Trouble
from penstock.limits import DECODE_VALUE_BYTES_MAX, DECODE_VALUE_CHARACTERS_MAX

__all__ = ["Report"]


class Report:
    """Formats findings one after the other, and counts them."""

    def __init__(self, *, json: bool) -> None:
        self.frames = 0
        self.faults = 0
        self._connections = 0
        self._json = json

    def tell(self, finding: Finding) -> str:
        """Return a finding as lines."""
        match finding:
            case Heading():
                self._connections += 1
                self.faults += not finding.protocol
            case Frame():
                self.frames += 1
                self.faults += finding.fault is not None
            case Trouble():
                self.faults += finding.kind in {"lost", "gap", "cut short"}
        if self._json:
            return json_format.dumps(_object(finding), ensure_ascii=False) + "\n"
        return "".join(f"{line}\n" for line in _lines(finding))

    def end(self) -> str:
        """Return the last line."""
        if self._json:
            return ""
        return (
            f"{_counted(self.frames, 'frame')} in {_counted(self._connections, 'connection')}, "
            f"{_counted(self.faults, 'fault')}\n"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- Text -----------------------------------------------------------------------------------------


def _lines(finding: Finding) -> Iterable[str]:
    match finding:
        case Heading(number, name, protocol, order, note):
            spoken = f"{protocol}, {order}-endian" if protocol else f"not decoded: {note}"
            yield f"connection {number} {shown(name)} {shown(spoken)}"
        case Frame():
            arrow = _arrow(from_client=finding.from_client)
            size = _counted(len(finding.data), "byte")
            yield f"{arrow} frame {finding.number} at {finding.start}, {size}: {finding.name}"
            yield from _field_lines(finding.fields, finding.data, finding.start)
            if finding.fault is not None:
                fault = finding.fault
                yield f"  ! {fault.name} at {fault.offset}: {shown(fault.text)}"
        case Trouble():
            arrow = _arrow(from_client=finding.from_client)
            if finding.fields:
                yield f"{arrow} part of a frame at {finding.offset}"
                yield from _field_lines(finding.fields, finding.data, finding.offset)
            fault = finding.fault
            yield f"{arrow} ! {fault.name} at {fault.offset}: {shown(fault.text)}"


def _arrow(*, from_client: bool) -> str:
    return "→" if from_client else "←"


def _field_lines(fields: Sequence[Field], data: bytes, base: int) -> Iterable[str]:
    cells = [
        (str(field.start), _hex(data[field.start - base : field.end - base]), shown(field.name))
        for field in fields
    ]
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(3)]
    for (start, digits, name), field in zip(cells, fields, strict=True):
        value = _value(field, data[field.start - base : field.end - base])
        fault = f"  ! {shown(field.fault)}" if field.fault else ""
        columns = f"{start:>{widths[0]}}  {digits:<{widths[1]}}  {name:<{widths[2]}}"
        yield f"  {columns}  {value}{fault}".rstrip()


def _hex(data: bytes) -> str:
    if len(data) <= DECODE_VALUE_BYTES_MAX:
        return data.hex(" ")
    return f"{data[: DECODE_VALUE_BYTES_MAX - 1].hex(' ')} …"


def _value(field: Field, data: bytes) -> str:
    match field.value:
        case int() if "Magic" in field.name or field.name == "CRC32":
            text = f"0x{field.value:0{2 * len(data)}X}"
        case int():
            text = str(field.value)
        case str():
            text = _cut(shown(field.value)) or "(empty)"
        case _:
            text = _cut(text_of(data[: DECODE_VALUE_CHARACTERS_MAX + 1])) if data else "(empty)"
    return f"{text} {field.means}" if field.means else text


def _cut(text: str) -> str:
    if len(text) <= DECODE_VALUE_CHARACTERS_MAX:
        return text
    return text[:DECODE_VALUE_CHARACTERS_MAX] + "…"


# --- JSON -----------------------------------------------------------------------------------------


def _object(finding: Finding) -> dict[str, object]:
    match finding:
        case Heading(number, name, protocol, order, note):
            return {
                "type": "connection",
                "connection": number,
                "name": name,
                "protocol": protocol or None,
                "order": order,
                "note": note or None,
            }
        case Frame():
            return {
                "type": "frame",
                "connection": finding.connection,
                "from": _role(from_client=finding.from_client),
                "frame": finding.number,
                "offset": finding.start,
                "length": len(finding.data),
                "name": finding.name,
                "fields": _field_objects(finding.fields, finding.data, finding.start),
                "error": None if finding.fault is None else finding.fault._asdict(),
            }
        case Trouble():
            return {
                "type": finding.kind.value,
                "connection": finding.connection,
                "from": _role(from_client=finding.from_client),
                "offset": finding.offset,
                "length": finding.length,
                "fields": _field_objects(finding.fields, finding.data, finding.offset),
                "error": finding.fault._asdict(),
            }


def _role(*, from_client: bool) -> str:
    return "client" if from_client else "server"


def _field_objects(fields: Iterable[Field], data: bytes, base: int) -> list[dict[str, object]]:
    return [
        {
            "name": field.name,
            "offset": field.start,
            "length": field.end - field.start,
            "hex": data[field.start - base : field.end - base].hex(),
            "value": field.value,
            "means": field.means or None,
            "fault": field.fault or None,
        }
        for field in fields
    ]
