"""The protocol pages tell the truth: their bytes are what the codecs read and write, their tables
what the code has.

A block of hex comes behind `<!-- client: … -->` or `<!-- broker: … -->`, which says who sends it and
the repr of what the other side's decoder makes of it: a packet, `Rejected`, or `raises` and an
error. `<!-- connection: protocol, order -->` starts a connection anew, and
`<!-- the broker awaits: id -->` makes a LamaMQ client's packet of that id an answer.
"""

import ast
import re
from collections.abc import Iterator
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import errors, limits
from penstock.errors import WireError
from penstock.gateway.fleximq.services import SERVICES
from penstock.model import ByteOrder, binary_topic_name, topic_name_from_binary
from penstock.patterns import compile_pattern
from penstock.protocols import PROTOCOLS
from penstock.protocols.lamamq import LAMAMQ_IDENTITY_NAME_BYTES_MAX
from penstock.wire import fleximq, herald, lamamq, rheos, rheos1, rheos2
from penstock.wire.decoder import Rejected
from penstock.wire.detect import Detected, detect

FOLDER = Path(__file__).parents[2] / "docs" / "protocols"
MODULES = {
    "rheos1": rheos1,
    "rheos2": rheos2,
    "fleximq": fleximq,
    "herald": herald,
    "lamamq": lamamq,
}
ENUMS: dict[str, tuple[type[IntEnum], ...]] = {
    "rheos1": (rheos.OpCode, rheos.AckCode),
    "rheos2": (rheos.OpCode, rheos.AckCode),
    "fleximq": (fleximq.MessageType, fleximq.StatusCode),
    "herald": (herald.OpCode, herald.ErrorCode),
    "lamamq": (
        lamamq.MessageType,
        lamamq.ErrorCode,
        lamamq.PayloadType,
        lamamq.HookStrategy,
        lamamq.HookType,
        lamamq.ConditionType,
    ),
}
LIMITS: dict[str, tuple[str, ...]] = {  # how the names of a page's own limits begin
    "rheos1": ("RHEOS",),
    "rheos2": ("RHEOS_",),
    "fleximq": ("FLEXIMQ_", "REQUEST"),
    "herald": ("HERALD_", "RESUME", "UDP_"),
    "lamamq": ("LAMAMQ_", "HOOK"),
}

ORDERS: tuple[ByteOrder, ...] = ("little", "big")

MARK = re.compile(
    r"^<!-- (client|broker|connection|the broker awaits): ([^\n]+) -->$(?:\n```hex\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
MENTION = re.compile(r"`(0x[0-9A-F]{2}|\d+) ([A-Z_]+)`")
FAULT = re.compile(r"`([A-Z]\w+)` `([a-z0-9-]+)`")
pages = pytest.mark.parametrize("name", MODULES)


def read(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text()


def rows(page: str) -> Iterator[list[str]]:
    for line in page.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def from_hex(block: str) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in block.splitlines()))


class Connection:
    """One decoder and one state for each direction, and all that the client sent."""

    def __init__(self, module: ModuleType, order: str) -> None:
        self.module = module
        self.options = {"order": order} if module in (herald, lamamq) else {}
        both = module.Decoder if module is herald else None
        self.decoders = {
            "client": (both or module.BrokerDecoder)(**self.options),
            "broker": (both or module.ClientDecoder)(**self.options),
        }
        self.tables = {"client": module.BROKER, "broker": module.CLIENT}
        self.states = {
            "client": next(iter(module.BrokerState)),
            "broker": next(iter(module.ClientState)),
        }
        self.from_client = b""

    def receive(self, side: str, data: bytes) -> str:
        """Return what the other side makes of one packet, told as the pages tell it."""
        if side == "client":
            self.from_client += data
        decoder = self.decoders[side]
        decoder.feed(data)
        try:
            (packet,) = decoder
        except WireError as error:
            return f"raises {error!r}"
        assert not decoder.unread
        if not isinstance(packet, Rejected):
            assert self.module.encode(packet, **self.options) == data
            self.states[side] = self.tables[side].advance(self.states[side], packet)
            if self.module is lamamq and side == "client" and hasattr(packet, "message_id"):
                self.decoders["broker"].awaited.add(packet.message_id)
        return repr(packet)


@pages
def test_every_block_decodes_to_the_packet_it_claims(name: str) -> None:
    page = read(name)
    connections: list[tuple[Connection, Detected]] = []
    blocks = 0
    for mark, claim, block in MARK.findall(page):
        if mark == "connection":
            protocol, order = claim.split(", ")
            assert protocol == name
            expected = Detected(PROTOCOLS[protocol], order)
            connections.append((Connection(MODULES[protocol], order), expected))
        elif mark == "the broker awaits":
            connections[-1][0].decoders["client"].awaited.add(int(claim, 16))
        else:
            blocks += 1
            assert connections[-1][0].receive(mark, from_hex(block)) == claim
    assert blocks == page.count("```hex") >= 5
    for connection, expected in connections:
        assert detect(connection.from_client) == expected


@pages
def test_sizes_in_remarks_are_those_on_their_line(name: str) -> None:
    for *_, block in MARK.findall(read(name)):
        for line in block.splitlines():
            fields, _, remark = line.partition("#")
            numbers = [bytes.fromhex(field) for field in fields.strip().split("  ")]
            found = {int.from_bytes(number, order) for number in numbers for order in ORDERS}
            sizes = re.findall(r" of ([\d,]+) bytes?", remark)
            assert {int(size.replace(",", "")) for size in sizes} <= found


@pages
def test_numbers_and_names_are_those_of_the_code(name: str) -> None:
    found = {(int(number, 0), label) for number, label in MENTION.findall(read(name))}
    assert found == {(member.value, member.name) for enum in ENUMS[name] for member in enum}


def limits_of_the_code() -> dict[str, float]:
    """The limits that all layers share, and those that the protocols declare."""
    modules = [limits, *(import_module(f"penstock.protocols.{each}") for each in PROTOCOLS.labels)]
    return {
        label: value
        for module in modules
        for label, value in vars(module).items()
        if label.isupper() and isinstance(value, int | float)
    }


@pages
def test_limits_are_those_of_the_code(name: str) -> None:
    found = {
        cells[0].strip("`"): int(cells[1].replace(",", ""))
        for cells in rows(read(name))
        if re.fullmatch(r"`[A-Z0-9]+(_[A-Z0-9]+)+`", cells[0])
    }
    declared = limits_of_the_code()
    assert found == {label: declared[label] for label in found}
    assert {label for label in declared if label.startswith(LIMITS[name])} <= found.keys()


@pages
def test_errors_and_their_answers_are_those_of_the_code(name: str) -> None:
    module: Any = MODULES[name]
    page = read(name)
    named = set()
    for label, code in FAULT.findall(page):
        error = getattr(module, label, None) or getattr(errors, label)
        assert error.code == code
        named.add(error)
    own = {
        value
        for value in vars(module).values()
        if isinstance(value, type) and hasattr(value, "code")
    }
    assert {error for error in own if issubclass(error, WireError)} <= named
    for cells in rows(page):
        for label, _ in FAULT.findall(cells[1]):
            error = getattr(module, label, None) or getattr(errors, label)
            answer = getattr(error, "answer", getattr(error, "status", None))
            if answer is not None and not cells[3].startswith("none"):
                assert f"`{answer.value} {answer.name}`" in cells[3]


def test_binary_names_are_escaped_as_shown() -> None:
    shown = re.findall(r"^\| `(b'.*')` \| `(.+)` \|$", read("rheos1"), re.MULTILINE)
    assert shown
    for literal, topic in shown:
        binary = ast.literal_eval(literal)
        assert topic_name_from_binary(binary) == topic
        assert binary_topic_name(topic) == binary


def test_fleximq_payloads_leave_as_shown() -> None:
    shown = re.findall(
        r"^\| `([0-9a-f ]+)` \| (\w+) \| `([0-9a-f ]+)` \|$", read("fleximq"), re.MULTILINE
    )
    assert shown
    for payload, kind, raw in shown:
        assert fleximq.raw_value(bytes.fromhex(payload)) == bytes.fromhex(raw)
        if kind == "bin":
            assert fleximq.wrap_value(bytes.fromhex(raw)) == bytes.fromhex(payload)


@pages
def test_every_page_says_what_the_broker_does(name: str) -> None:
    assert "\n## With the broker\n" in read(name)


def test_the_paths_of_client_1_are_those_of_the_code() -> None:
    shown = re.findall(r"^\| `(/\w+)` \| .*`\w+`.* \|$", read("fleximq"), re.MULTILINE)
    assert shown == list(SERVICES)


def test_patterns_match_as_shown() -> None:
    shown = [
        (pattern, re.findall(r"`([^`]+)`", fits), re.findall(r"`([^`]+)`", fits_not))
        for pattern, fits, fits_not in re.findall(
            r"^\| `([^`]+)` \| (`[^|]+) \| ([^|]*)\|$", read("README"), re.MULTILINE
        )
    ]
    assert len(shown) == 5
    for pattern, topics, others in shown:
        compiled = compile_pattern(pattern)
        for topic in (*topics, *others):
            found = compiled.fullmatch(topic) if compiled is not None else topic == pattern
            assert bool(found) == (topic in topics), (pattern, topic)


def test_bounds_of_topics_are_those_of_the_code() -> None:
    for bound in (limits.TOPIC_NAME_BYTES_MAX, limits.TOPICS_MAX):
        assert f" {bound:,}" in read("README")


def test_first_bytes_are_detected_as_shown() -> None:
    shown = re.findall(
        r"^\| `([0-9a-f ]+)` \| .+ \| (.+) \| (\w+) \|$", read("README"), re.MULTILINE
    )
    assert len(shown) == 7
    for first, protocol, order in shown:
        found = detect(bytes.fromhex(first))
        if found is None:
            assert protocol == "rheos1 or rheos2"
        else:
            assert (found.protocol.label, found.order) == (protocol, order)
    assert f"{limits.DETECT_BYTES_MAX:,}" in read("README")
    assert f"{LAMAMQ_IDENTITY_NAME_BYTES_MAX:,}" in read("README")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", path.read_text()):
        file = (path.parent / target).resolve() if target else path
        assert file.exists()
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {title.lower().replace(" ", "-") for title in titles}
