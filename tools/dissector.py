"""Write the Wireshark dissector from the layouts that `penstock decode` uses.

    src/penstock/decode/*.py ──┐
    tools/dissector_engine.lua ┴──▶ deploy/wireshark/penstock.lua

`make dissector` runs it. The engine has no layout in it; a field that is added to a layout is in
the dissector after the next run, and a test fails until then.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.decode import fleximq, herald, lamamq, rheos
from penstock.decode.layout import (
    Choice,
    Data,
    Form,
    Layout,
    Number,
    Packed,
    Repeat,
    Window,
)
from penstock.protocols import PROTOCOLS
from penstock.protocols.lamamq import LAMAMQ_IDENTITY_NAME_BYTES_MAX
from penstock.wire.lamamq.packets import BROKER_ID_BIT, VERSIONS_OFFERED

ROOT: Final = Path(__file__).parents[1]
ENGINE: Final = ROOT / "tools" / "dissector_engine.lua"
DISSECTOR: Final = ROOT / "deploy" / "wireshark" / "penstock.lua"
PORT: Final = 7000

LAYOUTS: Final[Mapping[str, Mapping[str, tuple[Layout, str]]]] = {
    "rheos1": {
        "REQUEST_1": (rheos.REQUEST_1, "Operation Code"),
        "ACKNOWLEDGMENT_1": (rheos.ACKNOWLEDGMENT_1, ""),
        "RESPONSE_1": (rheos.RESPONSE_1, ""),
    },
    "rheos2": {
        "EVENT_2": (rheos.EVENT_2, "Operation Code"),
        "ACKNOWLEDGMENT_2": (rheos.ACKNOWLEDGMENT_2, ""),
    },
    "fleximq": {"MESSAGE": (fleximq.MESSAGE, "Type")},
    "herald": {"FRAME": (herald.FRAME, "OpCode")},
    "lamamq": {
        "AUTHENTICATION": (lamamq.AUTHENTICATION, ""),
        "AUTHENTICATION_WITH_KEY": (lamamq.AUTHENTICATION_WITH_KEY, ""),
        "VERSION_OFFER": (lamamq.VERSION_OFFER, ""),
        "VERSION_CHOICE": (lamamq.VERSION_CHOICE, ""),
        "KEY_AND_CHOICE": (lamamq.KEY_AND_CHOICE, ""),
        "MESSAGE": (lamamq.MESSAGE, "Message type"),
        "ANSWER": (lamamq.ANSWER, ""),
    },
}
"""The layouts of each protocol, and the number whose meaning is the name of the frame."""

_TITLES: Final = {
    "ACKNOWLEDGMENT_1": "Acknowledgment", "ACKNOWLEDGMENT_2": "Acknowledgment",
    "RESPONSE_1": "Response", "KEY_AND_CHOICE": "Protocol version to use",
    "VERSION_CHOICE": "Protocol version to use", "VERSION_OFFER": "Supported protocol version",
    "AUTHENTICATION": "Authentication", "AUTHENTICATION_WITH_KEY": "Authentication",
    "ANSWER": "Answer",
}  # fmt: skip
_TEXTS: Final = frozenset({Form.NAME, Form.TEXT})
_HEAD: Final = """\
-- Wireshark dissector for the protocols of Penstock. `make dissector` writes this file.
-- Copy it to the folder of personal Lua plugins, or: tshark -X lua_script:penstock.lua -r FILE
-- Other ports than {port}: Analyze, Decode As, penstock; or -d tcp.port==PORT,penstock
"""


def slug(name: str) -> str:
    """Return a name as part of a filter: lower case, with underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def lua(value: str) -> str:
    """Return a text as a literal of Lua; names of the specifications are plain ASCII."""
    if not value.isascii() or '"' in value or "\\" in value:
        raise ValueError(value)
    return f'"{value}"'


class Fields:
    """The fields of one protocol. Fields of one name and one type are one field."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.names: list[str] = []
        self._numbers: dict[tuple[object, ...], str] = {}

    def add(self, name: str, kind: str, values: Mapping[int, str] | None = None) -> str:
        """Return the expression of a field, which is declared if it is new."""
        key = name, kind, tuple((values or {}).items())
        if key not in self._numbers:
            number = len(self._numbers) + 1
            base = slug(name)
            filtered = base
            while f"penstock.{self.label}.{filtered}" in self.names:
                filtered += "_"
            self.names.append(f"penstock.{self.label}.{filtered}")
            more = ""
            if kind.startswith("uint"):
                more = ", base.DEC" + (f", {table(values)}" if values and kind != "uint64" else "")
            self.lines.append(
                f"F[{number}] = ProtoField.{kind}({lua(self.names[-1])}, {lua(name)}{more})"
            )
            self._numbers[key] = f"F[{number}]"
        return self._numbers[key]


def table(values: Mapping[int, str]) -> str:
    """Return names of values as a table of Lua."""
    return "{ " + ", ".join(f"[{value}] = {lua(name)}" for value, name in values.items()) + " }"


def parts_of(layout: Layout, fields: Fields, indent: str) -> str:
    """Return a layout as a table of Lua."""
    inner = indent + "  "
    lines = [f"{inner}{part_of(part, fields, inner)},\n" for part in layout]
    return "{\n" + "".join(lines) + indent + "}" if lines else "{}"


def part_of(
    part: Number | Data | Packed | Repeat | Choice | Window, fields: Fields, indent: str
) -> str:
    """Return a part of a layout as a table of Lua."""
    match part:
        case Number(name, size, names, closed, maximum, is_sum):
            field = fields.add(name, f"uint{8 * size}", names)
            text = f'kind = "number", name = {lua(name)}, field = {field}, size = {size}'
            text += f", known = {table(names)}" if closed else ""
            text += f", maximum = {maximum}" if maximum is not None else ""
            text += ", sum = true" if is_sum else ""
        case Data(name, length, form):
            field = fields.add(name, "string" if form in _TEXTS else "bytes")
            text = f'kind = "data", field = {field}'
            if length is not None:
                text += f", length = {lua(length) if isinstance(length, str) else length}"
        case Packed(name, length):
            field = fields.add(name, "bytes")
            text = f'kind = "data", field = {field}, length = {lua(length)}, packed = true'
        case Repeat(_, times, inner):
            parts = parts_of(inner, fields, indent)
            text = f'kind = "repeat", times = {lua(times)}, parts = {parts}'
        case Choice(on, cases, other):
            inside = indent + "  "
            each = "".join(
                f"{inside}[{value}] = {parts_of(found, fields, inside)},\n"
                for value, found in cases.items()
            )
            text = f'kind = "choice", on = {lua(on)}, other = {parts_of(other, fields, indent)}, '
            text += "cases = {\n" + each + indent + "}"
        case Window(length, inner):
            text = f'kind = "window", length = {lua(length)}, '
            text += f"parts = {parts_of(inner, fields, indent)}"
    return "{ " + text + " }"


def names_on(layout: Layout, on: str) -> Mapping[int, str]:
    """Return the names of the number that tells what a frame is."""
    return next(part.names for part in layout if isinstance(part, Number) and part.name == on)


def protocol_lines(label: str) -> str:
    """Return the fields and layouts of a protocol."""
    fields = Fields(label)
    layouts = []
    for name, (layout, on) in LAYOUTS[label].items():
        head = f"title = {lua(_TITLES.get(name, name))}"
        if on:
            head += f", on = {lua(on)}, names = {table(names_on(layout, on))}"
        layouts.append(f"  {name} = {{ {head}, parts = {parts_of(layout, fields, '  ')} }},\n")
    title = PROTOCOLS[label].title
    return (
        f"\n-- {title}\n\ndo\n  local F = {{}}\n"
        + "".join(f"  {line}\n" for line in fields.lines)
        + f"  LAYOUTS.{label} = {{\n"
        + "".join(f"  {line}" for line in layouts)
        + f"  }}\n  local proto = Proto({lua(f'penstock.{label}')}, {lua(title)})\n"
        f"  proto.fields = F\n  local fault = ProtoExpert.new({lua(f'penstock.{label}.fault')}, "
        '"fault", expert.group.MALFORMED, expert.severity.ERROR)\n'
        "  proto.experts = { fault }\n"
        f"  PROTOCOLS.{label} = {{ proto = proto, fault = fault }}\nend\n"
    )


def dissector() -> str:
    """Return the text of the dissector."""
    lowest, highest = VERSIONS_OFFERED.minimum, VERSIONS_OFFERED.maximum
    constants = {
        "PORT": PORT,
        "LAMAMQ_NAME_BYTES_MAX": LAMAMQ_IDENTITY_NAME_BYTES_MAX,
        "LAMAMQ_VERSION_MIN": lowest[0] * 256 + lowest[1],
        "LAMAMQ_VERSION_MAX": highest[0] * 256 + highest[1],
        "LAMAMQ_BROKER_ID_BIT": BROKER_ID_BIT,
    }
    text = _HEAD.format(port=PORT) + "\n"
    text += "".join(f"local {name} = {value}\n" for name, value in constants.items())
    text += "local LAYOUTS, PROTOCOLS = {}, {}\n"
    text += "".join(protocol_lines(label) for label in LAYOUTS)
    return f"{text}\n{ENGINE.read_text()}"


if __name__ == "__main__":
    DISSECTOR.write_text(dissector())
    print(f"{DISSECTOR.relative_to(ROOT)} written")
