"""One side of a connection: what goes on after a fault, what stops, and where faults are."""

import struct

import pytest

from penstock.decode.findings import Frame, Heading, Trouble, TroubleKind
from penstock.protocols import PROTOCOLS, Protocol
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.rheos_bytes import RHEOS1, RHEOS2
from tests.unit.decode.golden import findings

JOIN = fx.frame(fx.JOIN, 0)
HELLO = lama.authentication(b"n")
GOOD1, GOOD2 = RHEOS1.request(2, b"name", b"data"), RHEOS2.request(2, b"name", b"data")
WRONG_SUM = GOOD2[:-1] + bytes([GOOD2[-1] ^ 1])


@pytest.mark.parametrize(
    ("protocol", "before", "bad", "name", "offset"),
    [
        (PROTOCOLS["herald"], b"", herald.frame(0x30, b"x"), "INVALID_OPCODE", 2),
        (PROTOCOLS["herald"], b"", herald.frame(0x11, b"ab"), "MALFORMED_MESSAGE", 8),
        (PROTOCOLS["herald"], b"", herald.frame(0x10), "MALFORMED_MESSAGE", 7),
        (PROTOCOLS["herald"], b"", herald.frame(0x01, b"\x07\x09ab"), "INVALID_HANDSHAKE", 9),
        (PROTOCOLS["herald"], b"", herald.frame(0x01, b"\x07\x01\xff"), "INVALID_HANDSHAKE", 9),
        (PROTOCOLS["rheos1"], GOOD1, RHEOS1.request(3, b"name"), "INVALID_OPERATION", 21),
        (PROTOCOLS["rheos1"], GOOD1, RHEOS1.packet(2, b"\xff\x00abc"), "CORRUPTED_TOPIC", 24),
        (PROTOCOLS["rheos2"], GOOD2, RHEOS2.request(9, b"name"), "INVALID_OPERATION", 21),
        (PROTOCOLS["rheos2"], GOOD2, RHEOS2.packet(2, b"\x01\x00\x02\x00\x00\x00abcd"), "CORRUPTED_DATA", 31),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(77, 1000), "501 Not Implemented", 1),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.PUB, 0, fx.topic("t")), "400 Bad Request", 2),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.PUB, 9, {}), "400 Bad Request", 26),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.SUB, 9, fx.topic("t") | fx.status(1)), "400 Bad Request", 35),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.PUB, 9, b"\x91\x01"), "400 Bad Request", 26),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.PUB, 9, fx.topic("t"), b"\xc1"), "400 Bad Request", 43),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.NOTIF, 9, {"routing": []}), "602 Invalid Routing", 27),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(fx.JOIN, 0, {"auth": {"type": "x"}}), "604 Authentication Failed", 27),
        (PROTOCOLS["lamamq"], HELLO + lama.CHOICE, lama.subscribe(1, b"\xff"), "Bad request", 9),
        (PROTOCOLS["lamamq"], HELLO + lama.CHOICE, lama.register(1, b"h", 0, strategy=9), "Bad request", 18),
    ],
)  # fmt: skip
def test_a_fault_in_a_whole_frame_has_its_name_and_offset_and_the_next_frame_is_read(
    protocol: Protocol, before: bytes, bad: bytes, name: str, offset: int
) -> None:
    after = {
        PROTOCOLS["herald"]: herald.PING,
        PROTOCOLS["rheos1"]: GOOD1,
        PROTOCOLS["rheos2"]: GOOD2,
        PROTOCOLS["fleximq"]: fx.frame(fx.SUB, 9, fx.topic("t")),
        PROTOCOLS["lamamq"]: lama.subscribe(2, b"t"),
    }[protocol]
    _, *found = findings(before + bad + after, protocol=protocol, from_client=True)
    wrong, good = found[-2:]
    assert isinstance(wrong, Frame)
    assert isinstance(good, Frame)
    assert wrong.data == bad
    assert wrong.fault is not None
    assert (wrong.fault.name, wrong.fault.offset - wrong.start) == (name, offset)
    assert (good.data, good.fault) == (after, None)


@pytest.mark.parametrize(
    ("protocol", "good", "bad", "name", "offset"),
    [
        (PROTOCOLS["herald"], herald.PING, b"\xfe\xcb\x20", "BAD_MAGIC", 0),
        (PROTOCOLS["herald"], herald.PING, struct.pack("<HBI", 0xCAFE, 16, 2**20 + 1), "MESSAGE_TOO_LARGE", 3),
        (PROTOCOLS["rheos1"], GOOD1, b"\xfb\x00\x00", "CORRUPTED_DATA", 0),
        (PROTOCOLS["rheos2"], GOOD2, WRONG_SUM, "CORRUPTED_DATA", len(GOOD2) - 4),
        (PROTOCOLS["fleximq"], JOIN, fx.frame(8, 9, fx.keepalive(1), version=2), "501 Not Implemented", 0),
        (PROTOCOLS["fleximq"], JOIN, struct.pack(">BBI16xI", 1, 5, 9, 65_537), "413 Payload Too Large", 22),
    ],
)  # fmt: skip
def test_where_framing_is_lost_the_next_frame_is_found_by_its_mark(
    protocol: Protocol, good: bytes, bad: bytes, name: str, offset: int
) -> None:
    _, first, lost, skipped, last = findings(good + bad + good, protocol=protocol, from_client=True)
    assert isinstance(first, Frame)
    assert isinstance(lost, Trouble)
    assert isinstance(skipped, Trouble)
    assert isinstance(last, Frame)
    assert lost.kind is TroubleKind.LOST
    assert (lost.fault.name, lost.fault.offset) == (name, len(good) + offset)
    assert skipped.kind is TroubleKind.SKIPPED
    assert skipped.offset + skipped.length == last.start == len(good + bad)
    assert (last.data, last.fault) == (good, None)


@pytest.mark.parametrize(
    ("protocol", "from_client", "data"),
    [
        (
            PROTOCOLS["lamamq"],
            True,
            HELLO + lama.CHOICE + lama.header(1, 99) + lama.subscribe(2, b"t"),
        ),
        (PROTOCOLS["rheos1"], False, b"\xac" + bytes(17) + b"\x99" + b"\xac" + bytes(17)),
    ],
)
def test_without_a_mark_it_says_that_it_stops(
    protocol: Protocol,
    from_client: bool,  # noqa: FBT001
    data: bytes,
) -> None:
    *_, lost, unread = findings(data, protocol=protocol, from_client=from_client)
    assert isinstance(lost, Trouble)
    assert isinstance(unread, Trouble)
    assert lost.kind is TroubleKind.LOST
    assert lost.fault.text.endswith("has no mark to find the next frame by: it stops here")
    assert unread.kind is TroubleKind.UNREAD
    assert unread.offset + unread.length == len(data)


@pytest.mark.parametrize("order", [lama.BIG, lama.LITTLE])
@pytest.mark.parametrize("key", [None, b"", b"a key"])
@pytest.mark.parametrize("rest", ["", "good", "bad"])
def test_a_lamamq_key_is_told_from_the_choice_of_a_version(
    order: str, key: bytes | None, rest: str
) -> None:
    name = lama.authentication(b"n", key, order=order)
    behind = {
        "": b"",
        "good": lama.subscribe(1, b"t", order=order),
        "bad": lama.header(1, 99, order=order),
    }[rest]
    _, first, second, *_ = findings(name + lama.CHOICE + behind, protocol=PROTOCOLS["lamamq"])
    assert isinstance(first, Frame)
    assert isinstance(second, Frame)
    assert (first.data, second.data) == (name, lama.CHOICE)


def test_a_mark_inside_rubbish_is_not_taken_for_a_frame() -> None:
    rubbish = b"\x00\xfe\xca\x99" * 5 + b"\xfe\xca\x20\x01\x00\x00\x00\x00"
    _, lost, skipped, ping = findings(rubbish + herald.PING, protocol=PROTOCOLS["herald"])
    assert isinstance(lost, Trouble)
    assert isinstance(skipped, Trouble)
    assert isinstance(ping, Frame)
    assert ping.data == herald.PING
    assert ping.start == len(rubbish)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "WebSocket"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"hello", "first bytes: 68"),
        (b"\xfa\x10", "settle no protocol"),
    ],
)
def test_what_is_none_of_the_protocols_says_so(data: bytes, said: str) -> None:
    (heading,) = findings(data)
    assert isinstance(heading, Heading)
    assert heading.protocol == ""
    assert said in heading.note
