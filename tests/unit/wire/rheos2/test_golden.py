"""Golden vectors of Rheos v2, typed in from the tables of the specification.

The checksums were computed with gzip; `checksum` computes them again, bit by bit.
"""

from typing import Any

import pytest

from penstock.wire import rheos2
from penstock.wire.decoder import Decoder
from penstock.wire.rheos2 import AckCode, OpCode
from tests.support.streams import assert_every_cut_agrees
from tests.unit.wire.rheos2.checksum import crc32, sealed

ID = bytes(range(16))
ALL_ONES = b"\xff" * 16

EVENTS = [
    (
        "CREATE",
        rheos2.Event(ID, OpCode.CREATE, b"sensors", b""),
        "FA 0D000000 000102030405060708090A0B0C0D0E0F 00  0700 00000000 73656E736F7273  BD65193D",
    ),
    (
        "SUBSCRIBE",
        rheos2.Event(ID, OpCode.SUBSCRIBE, b"sensors", b""),
        "FA 0D000000 000102030405060708090A0B0C0D0E0F 01  0700 00000000 73656E736F7273  CB8416A0",
    ),
    (
        "PUBLISH",
        rheos2.Event(ID, OpCode.PUBLISH, b"sensor_update", b"\xde\xad\xbe\xef"),
        "FA 17000000 000102030405060708090A0B0C0D0E0F 02  0D00 04000000 73656E736F725F757064617465 DEADBEEF  2E91379A",
    ),
    (
        "PUBLISH of nothing to no name",
        rheos2.Event(ID, OpCode.PUBLISH, b"", b""),
        "FA 06000000 000102030405060708090A0B0C0D0E0F 02  0000 00000000  CCB81DF0",
    ),
    (
        "PUBLISH of magic bytes to a name that is not UTF-8",
        rheos2.Event(ALL_ONES, OpCode.PUBLISH, b"\xff\x80", b"\x00\xfa"),
        "FA 0A000000 FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF 02  0200 02000000 FF80 00FA  9C508B09",
    ),
]

ACKNOWLEDGMENTS = [
    (
        "Acknowledgment SUCCESS",
        rheos2.Acknowledgment(AckCode.SUCCESS, ID),
        "AC 00 000102030405060708090A0B0C0D0E0F  2B41BAAA",
    ),
    (
        "Acknowledgment FAILED",
        rheos2.Acknowledgment(AckCode.FAILED, ID),
        "AC 01 000102030405060708090A0B0C0D0E0F  688A1C2D",
    ),
]

# A subscriber receives events too, so a client reads all of them.
GOLDEN: list[tuple[str, type[Decoder[Any]], rheos2.Packet, str]] = [
    *(
        (f"{name} to the broker", rheos2.BrokerDecoder, packet, text)
        for name, packet, text in EVENTS
    ),
    *((f"{name} to a client", rheos2.ClientDecoder, packet, text) for name, packet, text in EVENTS),
    *((name, rheos2.ClientDecoder, packet, text) for name, packet, text in ACKNOWLEDGMENTS),
]
IDS = [name for name, *_ in GOLDEN]


def test_the_checksum_of_these_tests_is_crc32() -> None:
    assert crc32(b"123456789") == 0xCBF43926  # the check value every catalogue of CRCs lists
    assert crc32(b"") == 0
    for *_, text in EVENTS + ACKNOWLEDGMENTS:
        frame = bytes.fromhex(text)
        assert sealed(frame[:-4].hex()) == frame


@pytest.mark.parametrize(("_name", "_decoder", "packet", "text"), GOLDEN, ids=IDS)
def test_encodes_to_the_specified_bytes(
    _name: str, _decoder: type, packet: rheos2.Packet, text: str
) -> None:
    assert rheos2.encode(packet) == bytes.fromhex(text)


@pytest.mark.parametrize(("_name", "decoder", "packet", "text"), GOLDEN, ids=IDS)
def test_decodes_from_the_specified_bytes(
    _name: str, decoder: type, packet: rheos2.Packet, text: str
) -> None:
    frame = bytes.fromhex(text)
    assert decoder().decode_at(frame, 0) == (packet, len(frame))
    assert decoder().decode_at(bytearray(b"??" + frame + b"??"), 2) == (packet, 2 + len(frame))


def test_each_length_has_its_own_width() -> None:
    text = "FA 0E020100 000102030405060708090A0B0C0D0E0F 02 0501 03010100"
    frame = sealed(text + "6E" * 0x0105 + "70" * 0x010103)
    packet = rheos2.Event(ID, OpCode.PUBLISH, b"n" * 0x0105, b"p" * 0x010103)
    assert rheos2.encode(packet) == frame
    assert rheos2.BrokerDecoder().decode_at(frame, 0) == (packet, len(frame))


def test_the_longest_name_fits() -> None:
    packet = rheos2.Event(ID, OpCode.CREATE, b"n" * 65_535, b"")
    frame = sealed("FA 05000100" + ID.hex() + "00 FFFF 00000000" + "6E" * 65_535)
    assert rheos2.encode(packet) == frame
    assert rheos2.ClientDecoder().decode_at(frame, 0) == (packet, len(frame))


def test_events_do_not_depend_on_where_the_stream_is_cut() -> None:
    stream = bytes.fromhex("".join(text for *_, text in EVENTS))
    items = assert_every_cut_agrees(rheos2.BrokerDecoder, stream)
    assert items == [packet for _, packet, _ in EVENTS]


def test_what_the_client_reads_does_not_depend_on_where_the_stream_is_cut() -> None:
    rows = [ACKNOWLEDGMENTS[0], *EVENTS, ACKNOWLEDGMENTS[1]]
    items = assert_every_cut_agrees(
        rheos2.ClientDecoder, bytes.fromhex("".join(text for *_, text in rows))
    )
    assert items == [packet for _, packet, _ in rows]


def test_a_packet_is_given_with_its_last_byte_and_not_before() -> None:
    for _, decoder, packet, text in GOLDEN:
        frame = bytes.fromhex(text)
        for size in range(len(frame)):
            assert decoder().decode_at(frame[:size], 0) is None
        assert decoder().decode_at(frame, 0) == (packet, len(frame))


def test_decoded_fields_are_bytes_of_their_own() -> None:
    buffer = bytearray.fromhex(EVENTS[2][2])
    step = rheos2.BrokerDecoder().decode_at(buffer, 0)
    buffer.clear()  # would raise BufferError if a view of it were left
    assert step is not None
    assert step[0] == EVENTS[2][1]
    assert isinstance(step[0], rheos2.Event)
    assert {type(field) for field in (step[0].client_id, step[0].name, step[0].data)} == {bytes}
    assert type(step[0].opcode) is OpCode
