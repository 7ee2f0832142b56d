"""Payloads between fleximq and protocols that carry plain bytes; headers of plain publications."""

import pytest

from penstock.wire import fleximq
from tests.unit.wire.fleximq.frames import REQUEST, ROUTING, STATUS, TOPIC

RAW = [
    ("nothing", "", b""),
    ("fixstr", "A2 6869", b"hi"),
    ("empty fixstr", "A0", b""),
    ("str 8", "D9 02 6869", b"hi"),
    ("str 16", "DA 0002 6869", b"hi"),
    ("str 32", "DB 00000002 6869", b"hi"),
    ("bin 8", "C4 02 FFFE", b"\xff\xfe"),
    ("bin 16", "C5 0002 FFFE", b"\xff\xfe"),
    ("bin 32", "C6 00000002 FFFE", b"\xff\xfe"),
    ("nil", "C0", b"\xc0"),
    ("integer", "07", b"\x07"),
    ("array of a bin", "91 C4 01 61", b"\x91\xc4\x01a"),
    ("map", "81 A1 61 01", b"\x81\xa1a\x01"),
    ("ext", "D4 05 61", b"\xd4\x05a"),
]


@pytest.mark.parametrize(("_name", "payload", "raw"), RAW, ids=[row[0] for row in RAW])
def test_one_bin_or_str_leaves_as_its_bytes_and_the_rest_as_it_is(
    _name: str, payload: str, raw: bytes
) -> None:
    assert fleximq.raw_value(bytes.fromhex(payload)) == raw


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, "C4 00"), (1, "C4 01"), (255, "C4 FF"), (256, "C5 0100"), (65_535, "C5 FFFF"),
        (65_536, "C6 00010000"),
    ],
)  # fmt: skip
def test_bytes_arrive_as_the_shortest_bin(size: int, head: str) -> None:
    value = b"\xc1" * size
    payload = fleximq.wrap_value(value)
    assert payload == bytes.fromhex(head) + value
    assert fleximq.raw_value(payload) == value


def test_a_publication_is_a_valid_pub_without_routing() -> None:
    topic, status = bytes.fromhex(TOPIC), bytes.fromhex(STATUS)
    assert fleximq.publication(b"\x81" + topic) == ("news", None)
    assert fleximq.publication(b"\x82" + topic + status) == ("news", 200)
    assert fleximq.publication(b"\x82\xa1x\xc0" + topic) == ("news", None)
    assert fleximq.publication(bytes.fromhex("81 A5 746F706963 A0")) == ("", None)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x80",
        b"\xc1",
        b"\x81" + bytes.fromhex(STATUS),
        b"\x82" + bytes.fromhex(TOPIC + TOPIC),
        b"\x82" + bytes.fromhex(TOPIC + ROUTING),
        b"\x82" + bytes.fromhex(TOPIC + REQUEST),
        b"\x81" + bytes.fromhex(TOPIC) + b"\x00",
        bytes.fromhex("81 A5 746F706963 01"),
    ],
)
def test_any_other_header_is_no_publication(header: bytes) -> None:
    assert fleximq.publication(header) is None
