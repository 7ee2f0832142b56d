"""Golden vectors of Rheos v1, typed in from the tables of the specification."""

from typing import Any

import pytest

from penstock.wire import rheos1
from penstock.wire.decoder import Decoder
from penstock.wire.rheos1 import AckCode, OpCode
from tests.support.streams import assert_every_cut_agrees

ID = bytes(range(16))
ALL_ONES = b"\xff" * 16

TO_BROKER = [
    (
        "CREATE",
        rheos1.Request(ID, OpCode.CREATE, b"sensors", b""),
        "FA 0B000000 000102030405060708090A0B0C0D0E0F 00  0700 73656E736F7273 0000",
    ),
    (
        "SUBSCRIBE",
        rheos1.Request(ID, OpCode.SUBSCRIBE, b"sensors", b""),
        "FA 0B000000 000102030405060708090A0B0C0D0E0F 01  0700 73656E736F7273 0000",
    ),
    (
        "PUBLISH",
        rheos1.Request(ID, OpCode.PUBLISH, b"sensors", b"\xde\xad\xbe\xef"),
        "FA 0F000000 000102030405060708090A0B0C0D0E0F 02  0700 73656E736F7273 0400 DEADBEEF",
    ),
    (
        "PUBLISH of nothing to no name",
        rheos1.Request(ID, OpCode.PUBLISH, b"", b""),
        "FA 04000000 000102030405060708090A0B0C0D0E0F 02  0000 0000",
    ),
    (
        "PUBLISH of magic bytes to a name that is not UTF-8",
        rheos1.Request(ALL_ONES, OpCode.PUBLISH, b"\xff\x80", b"\x00\xfa"),
        "FA 08000000 FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF 02  0200 FF80 0200 00FA",
    ),
    (
        "PUBLISH with lengths of two bytes",
        rheos1.Request(ID, OpCode.PUBLISH, b"n" * 0x0102, b"p" * 0x0304),
        "FA 0A040000 000102030405060708090A0B0C0D0E0F 02 0201"
        + "6E" * 0x0102 + "0403" + "70" * 0x0304,
    ),
    (
        "PUBLISH with the longest name and payload",
        rheos1.Request(ID, OpCode.PUBLISH, b"n" * 65_535, b"p" * 65_535),
        "FA 02000200 000102030405060708090A0B0C0D0E0F 02 FFFF"
        + "6E" * 65_535 + "FFFF" + "70" * 65_535,
    ),
]  # fmt: skip

TO_CLIENT: list[tuple[str, rheos1.ClientPacket, str]] = [
    (
        "Acknowledgment SUCCESS",
        rheos1.Acknowledgment(ID, AckCode.SUCCESS),
        "AC 000102030405060708090A0B0C0D0E0F 00",
    ),
    (
        "Acknowledgment FAILED",
        rheos1.Acknowledgment(ALL_ONES, AckCode.FAILED),
        "AC FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF 01",
    ),
    (
        "Response",
        rheos1.Response(ID, b"hello"),
        "15 05000000 000102030405060708090A0B0C0D0E0F  68656C6C6F",
    ),
    (
        "Response empty",
        rheos1.Response(ALL_ONES, b""),
        "15 00000000 FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
    ),
    (
        "Response with a length of three bytes",
        rheos1.Response(ID, b"p" * 0x010203),
        "15 03020100 000102030405060708090A0B0C0D0E0F" + "70" * 0x010203,
    ),
]

GOLDEN: list[tuple[str, type[Decoder[Any]], rheos1.Packet, str]] = [
    *((name, rheos1.BrokerDecoder, packet, text) for name, packet, text in TO_BROKER),
    *((name, rheos1.ClientDecoder, packet, text) for name, packet, text in TO_CLIENT),
]
IDS = [name for name, *_ in GOLDEN]


@pytest.mark.parametrize(("_name", "_decoder", "packet", "text"), GOLDEN, ids=IDS)
def test_encodes_to_the_specified_bytes(
    _name: str, _decoder: type, packet: rheos1.Packet, text: str
) -> None:
    assert rheos1.encode(packet) == bytes.fromhex(text)


@pytest.mark.parametrize(("_name", "decoder", "packet", "text"), GOLDEN, ids=IDS)
def test_decodes_from_the_specified_bytes(
    _name: str, decoder: type, packet: rheos1.Packet, text: str
) -> None:
    frame = bytes.fromhex(text)
    assert decoder().decode_at(frame, 0) == (packet, len(frame))
    assert decoder().decode_at(bytearray(b"??" + frame + b"??"), 2) == (packet, 2 + len(frame))


def test_requests_do_not_depend_on_where_the_stream_is_cut() -> None:
    short = [row for row in TO_BROKER if len(row[2]) < 200]
    stream = bytes.fromhex("".join(text for *_, text in short))
    items = assert_every_cut_agrees(rheos1.BrokerDecoder, stream)
    assert items == [packet for _, packet, _ in short]


def test_what_the_client_reads_does_not_depend_on_where_the_stream_is_cut() -> None:
    short = [row for row in TO_CLIENT if len(row[2]) < 200]
    stream = bytes.fromhex("".join(text for *_, text in short))
    items = assert_every_cut_agrees(rheos1.ClientDecoder, stream)
    assert items == [packet for _, packet, _ in short]


def test_a_packet_is_given_with_its_last_byte_and_not_before() -> None:
    for _, decoder, packet, text in GOLDEN:
        frame = bytes.fromhex(text)
        for size in {*range(min(len(frame), 64)), len(frame) - 1}:
            assert decoder().decode_at(frame[:size], 0) is None
        assert decoder().decode_at(frame, 0) == (packet, len(frame))


def test_decoded_fields_are_bytes_of_their_own() -> None:
    buffer = bytearray.fromhex(TO_BROKER[2][2])
    step = rheos1.BrokerDecoder().decode_at(buffer, 0)
    buffer.clear()  # would raise BufferError if a view of it were left
    assert step is not None
    assert step[0] == TO_BROKER[2][1]
    assert isinstance(step[0], rheos1.Request)
    assert {type(field) for field in (step[0].client_id, step[0].name, step[0].payload)} == {bytes}
    assert type(step[0].opcode) is OpCode


def test_the_topic_encoding_is_that_of_the_table() -> None:
    body = bytes.fromhex("0700 73656E736F7273 0400 DEADBEEF")
    assert rheos1.encode_topic(b"sensors", b"\xde\xad\xbe\xef") == body
    for buffer in (bytes(body), bytearray(body), memoryview(body)):
        name, payload = rheos1.decode_topic(buffer)
        assert (name, payload) == (b"sensors", b"\xde\xad\xbe\xef")
        assert type(name) is type(payload) is bytes


def test_a_topic_has_parent_name_and_clients() -> None:
    topic = rheos1.Topic(ID, b"sensors", (ALL_ONES,))
    assert (topic.parent, topic.name, topic.clients) == (ID, b"sensors", (ALL_ONES,))
    assert rheos1.Topic(ID, b"sensors").clients == ()
    assert hash(topic) == hash(rheos1.Topic(ID, b"sensors", (ALL_ONES,)))
