"""First packets of every protocol, typed in from the specifications, and what is none of them."""

import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import UnrecognisedProtocol
from penstock.protocols import PROTOCOLS
from penstock.protocols.rheos2 import RHEOS_BODY_BYTES_MAX
from penstock.wire.detect import Detected, conclude, detect

RHEOS1 = Detected(PROTOCOLS["rheos1"], "little")
RHEOS2 = Detected(PROTOCOLS["rheos2"], "little")
FLEXIMQ = Detected(PROTOCOLS["fleximq"], "big")
HERALD_LITTLE = Detected(PROTOCOLS["herald"], "little")
HERALD_BIG = Detected(PROTOCOLS["herald"], "big")
LAMAMQ_LITTLE = Detected(PROTOCOLS["lamamq"], "little")
LAMAMQ_BIG = Detected(PROTOCOLS["lamamq"], "big")

CLIENT = "00112233445566778899AABBCCDDEEFF"

# name, first bytes, how many of them settle it, what they speak
GOLDEN = [
    ("herald HANDSHAKE_PUB, little", "FECA 01 07000000 05 05 6465762D31", 2, HERALD_LITTLE),
    ("herald HANDSHAKE_PUB, big", "CAFE 01 00000007 05 05 6465762D31", 2, HERALD_BIG),
    ("fleximq JOIN", "01 00 00000000" + "00" * 16 + "00000001 80 0000000000000000", 1, FLEXIMQ),
    ("LamaMQ, network order", "00 00000004 6C616D61 00000001 6B", 5, LAMAMQ_BIG),
    ("LamaMQ, little", "00 04000000 6C616D61 01000000 6B", 5, LAMAMQ_LITTLE),
    ("LamaMQ, 1024 bytes, network order", "00 00000400 6161", 5, LAMAMQ_BIG),
    ("LamaMQ, 1024 bytes, little", "00 00040000 6161", 5, LAMAMQ_LITTLE),
    ("LamaMQ, 256 bytes, network order", "00 00000100 6161", 5, LAMAMQ_BIG),
    ("LamaMQ, 256 bytes, little", "00 00010000 6161", 5, LAMAMQ_LITTLE),
    ("LamaMQ, empty name", "00 00000000", 5, LAMAMQ_BIG),
    ("Rheos v1 PUBLISH", f"FA 0B000000 {CLIENT} 02 0300 616263 0400 64617461", 29, RHEOS1),
    ("Rheos v1 SUBSCRIBE", f"FA 07000000 {CLIENT} 01 0300 616263 0000", 29, RHEOS1),
    ("Rheos v1, empty name and payload", f"FA 04000000 {CLIENT} 00 0000 0000", 5, RHEOS1),
    ("Rheos v1, body of 5, payload", f"FA 05000000 {CLIENT} 00 0000 0100 61", 5, RHEOS1),
    ("Rheos v1, body of 5, name", f"FA 05000000 {CLIENT} 00 0100 61 0000", 5, RHEOS1),
    ("Rheos v1, body of 6, payload", f"FA 06000000 {CLIENT} 00 0000 0200 6161", 26, RHEOS1),
    ("Rheos v1, body of 6, name", f"FA 06000000 {CLIENT} 00 0200 6161 0000", 28, RHEOS1),
    ("Rheos v1, unknown opcode", f"FA 04000000 {CLIENT} 63 0000 0000", 5, RHEOS1),
    ("Rheos v2 PUBLISH", f"FA 0D000000 {CLIENT} 02 0300 04000000 616263 64617461", 28, RHEOS2),
    ("Rheos v2 SUBSCRIBE", f"FA 09000000 {CLIENT} 01 0300 00000000 616263 00000000", 28, RHEOS2),
    ("Rheos v2, empty name and data", f"FA 06000000 {CLIENT} 00 0000 00000000", 28, RHEOS2),
    ("Rheos v2, unknown opcode", f"FA 06000000 {CLIENT} 63 0000 00000000", 28, RHEOS2),
    ("Rheos v2, long name", f"FA 0F000000 {CLIENT} 02 0900 00000000 " + "61" * 9, 34, RHEOS2),
    # too many bytes of body for v1's 16-bit lengths, so nothing of it is waited for
    ("Rheos v2, long data", f"FA FFFFFF00 {CLIENT} 02 0300 F6FFFF00 616263", 5, RHEOS2),
]  # fmt: skip

# Bytes that are wrong, in the one protocol that they can belong to.
GOLDEN += [
    ("fleximq, not JOIN", "01 05 00000000", 1, FLEXIMQ),
    ("fleximq, client id", "01 00 00000001", 1, FLEXIMQ),
    ("fleximq, JOIN of version 2", "02 00 00000000", 6, FLEXIMQ),
    ("fleximq, JOIN of version 255", "FF 00 00000000", 6, FLEXIMQ),
    ("LamaMQ, 1025 bytes, network order", "00 00000401 61", 5, LAMAMQ_BIG),
    ("LamaMQ, 1025 bytes, little", "00 01040000 61", 3, LAMAMQ_BIG),
    ("LamaMQ, long in both orders", "00 00050000 61", 3, LAMAMQ_BIG),
    ("LamaMQ, text", "00 48545450", 3, LAMAMQ_BIG),
    ("LamaMQ, one byte too many for little", "00 01000001", 5, LAMAMQ_BIG),
    ("Rheos v2, body above the limit", f"FA 01000001 {CLIENT}", 5, RHEOS2),
    ("Rheos v1, body of 4, payload length", f"FA 04000000 {CLIENT} 00 0000 0100", 5, RHEOS1),
]  # fmt: skip

# name, first bytes, how many of them rule out every protocol
UNRECOGNISED = [
    ("herald, second byte", "FE CB", 2),
    ("herald, both orders mixed", "FE FE", 2),
    ("herald, big, second byte", "CA CA", 2),
    ("fleximq 2, not JOIN", "02 05 00000000", 2),
    ("fleximq 2, client id, first byte", "02 00 01000000", 3),
    ("fleximq 2, client id, last byte", "02 00 00000001", 6),
    ("HTTP", "47 45 54 20 2F", 2),
    ("TLS", "16 03 01 02 00", 2),
    ("Rheos, body of 0", f"FA 00000000 {CLIENT}", 5),
    ("Rheos, body of 3", f"FA 03000000 {CLIENT} 00 0000 00", 5),
    ("Rheos, name longer than the body", f"FA 06000000 {CLIENT} 00 0300 00000000", 23),
    ("Rheos, name far longer than the body", f"FA 06000000 {CLIENT} 00 0001 00000000", 24),
    ("Rheos, lengths of neither", f"FA 0B000000 {CLIENT} 02 0300 616263 0500 64617461", 28),
    ("Rheos, v2 data one too long", f"FA 0D000000 {CLIENT} 02 0300 05000000 616263", 28),
    ("Rheos, v2 data high byte", f"FA 0D000000 {CLIENT} 02 0300 04000001 616263", 28),
]  # fmt: skip


def rheos1(name: bytes, payload: bytes) -> bytes:
    body = struct.pack("<H", len(name)) + name + struct.pack("<H", len(payload)) + payload
    return struct.pack("<BI16sB", 0xFA, len(body), bytes.fromhex(CLIENT), 2) + body


def rheos2(name: bytes, data: bytes) -> bytes:
    body = struct.pack("<HI", len(name), len(data)) + name + data
    packet = struct.pack("<BI16sB", 0xFA, len(body), bytes.fromhex(CLIENT), 2) + body
    return packet + struct.pack("<I", zlib.crc32(packet))


# v1: name FE 00 00, 256 bytes of payload. v2: name 00 01 xx, 254 bytes of data.
BOTH_FIT = rheos1(b"\xfe\x00\x00", b"x" * 256)
CHECKSUM = zlib.crc32(BOTH_FIT).to_bytes(4, "little")

Answer = Detected | tuple[bytes, str] | None


def answer(data: bytes | bytearray, *, bytes_max: int = limits.DETECT_BYTES_MAX) -> Answer:
    """What `detect` says of `data`, its error by its arguments; it raises nothing else."""
    try:
        return detect(data, bytes_max=bytes_max)
    except UnrecognisedProtocol as error:
        return error.first_bytes, error.reason


def assert_monotone(data: bytes, *, bytes_max: int = limits.DETECT_BYTES_MAX) -> int | None:
    """None until a prefix of `data` settles it, one answer from there on; return where."""
    settled = None
    for size in range(len(data) + 1):
        found = answer(data[:size], bytes_max=bytes_max)
        assert found == answer(bytearray(data[:size]), bytes_max=bytes_max)
        if settled is not None:
            assert found == answer(data[:settled], bytes_max=bytes_max)
        elif found is not None:
            settled = size
    return settled


@pytest.mark.parametrize(
    ("_name", "text", "settled", "detected"), GOLDEN, ids=[row[0] for row in GOLDEN]
)
def test_first_packets_are_settled_by_no_more_bytes_than_needed(
    _name: str, text: str, settled: int, detected: Detected
) -> None:
    data = bytes.fromhex(text)
    assert assert_monotone(data + b"\xff" * 40) == settled
    assert detect(data[:settled]) == conclude(data[:settled]) == detected
    assert detect(data[: settled - 1]) is None
    assert conclude(data[: settled - 1]) in (None, detected)  # one version of Rheos may be left


@pytest.mark.parametrize(
    ("_name", "text", "settled"), UNRECOGNISED, ids=[row[0] for row in UNRECOGNISED]
)
def test_near_misses_are_unrecognised_at_the_byte_that_shows_it(
    _name: str, text: str, settled: int
) -> None:
    data = bytes.fromhex(text)
    assert assert_monotone(data + b"\x00" * 40) == settled
    for judge in (detect, conclude):
        with pytest.raises(UnrecognisedProtocol) as caught:
            judge(data[:settled])
        assert data.startswith(caught.value.first_bytes)


def test_every_other_first_byte_is_a_join_of_another_version_or_unrecognised() -> None:
    for byte in range(256):
        if byte == 0x01:
            assert detect(bytes([byte])) == FLEXIMQ
        else:
            assert detect(bytes([byte])) is None
        if byte not in (0xFE, 0xCA, 0x01, 0x00, 0xFA):
            assert detect(bytes([byte]) + bytes(5)) == FLEXIMQ
            with pytest.raises(UnrecognisedProtocol):
                detect(bytes([byte, 1]))


def test_nothing_is_settled_by_nothing() -> None:
    assert detect(b"") is None
    assert conclude(b"") is None


def test_a_body_that_v1_cannot_have_is_v2() -> None:
    longest = 4 + 2 * 65_535
    assert detect(b"\xfa" + longest.to_bytes(4, "little")) is None
    for size in (longest + 1, RHEOS_BODY_BYTES_MAX, RHEOS_BODY_BYTES_MAX + 1):
        assert detect(b"\xfa" + size.to_bytes(4, "little")) == RHEOS2


def test_the_longest_v1_packet_is_recognised() -> None:
    packet = rheos1(b"n" * 65_535, b"p" * 65_535)
    settled = 22 + 2 + 65_535 + 2
    assert detect(packet[: settled - 1]) is None
    assert detect(packet[:settled]) == detect(packet) == RHEOS1


# --- Both versions of Rheos fit -------------------------------------------------------------------


def test_both_fit_and_the_checksum_follows_is_v2() -> None:
    assert CHECKSUM[0] != 0xFA
    assert assert_monotone(BOTH_FIT + CHECKSUM + b"more") == len(BOTH_FIT) + 1
    assert detect(BOTH_FIT + CHECKSUM) == RHEOS2


def test_both_fit_and_any_byte_of_the_checksum_differs_is_a_damaged_v2_packet() -> None:
    for position in range(4):
        wrong = bytearray(CHECKSUM)
        wrong[position] ^= 1
        assert detect(BOTH_FIT + wrong) == RHEOS2


def test_a_checksum_that_starts_like_a_packet_is_compared_to_its_end() -> None:
    payloads = (b"%03d" % number + b"x" * 253 for number in range(1000))
    packet, checksum = next(
        (both, found)
        for both in (rheos1(b"\xfe\x00\x00", payload) for payload in payloads)
        if (found := zlib.crc32(both).to_bytes(4, "little"))[0] == 0xFA
    )
    assert assert_monotone(packet + checksum) == len(packet) + 4
    assert detect(packet + checksum) == RHEOS2
    assert detect(packet + packet) == RHEOS1


def test_both_fit_and_a_second_v1_packet_follows_is_v1() -> None:
    assert CHECKSUM[0] != 0xFA
    assert detect(BOTH_FIT + BOTH_FIT) == RHEOS1


def test_both_fit_and_the_checksum_is_missing_is_v1_if_nothing_follows() -> None:
    assert detect(BOTH_FIT) is None
    assert conclude(BOTH_FIT) == RHEOS1
    assert conclude(BOTH_FIT + CHECKSUM) == RHEOS2
    assert conclude(BOTH_FIT[:-1]) is None


def test_a_v2_packet_whose_name_spells_its_length_is_v2() -> None:
    name = b"abcd"  # "ab" is 0x6261, which v1 reads as the length of its payload
    packet = rheos2(name, b"x" * (0x6261 - 2))
    assert detect(packet[:-4]) is None
    assert detect(packet) == RHEOS2


def test_both_fitting_needs_a_nul_in_the_name_that_v1_reads() -> None:
    # Names and payloads that start as v2's length would have to: what could fit both, does.
    waiting = set()
    for name_bytes in range(6):
        for payload_bytes in range(2, 65_536, 127):  # 2 + 2 * 127 = 256 is one of them
            length = (payload_bytes - 2).to_bytes(4, "little")
            name = length[:name_bytes].ljust(name_bytes, b"n")
            payload = length[name_bytes + 2 :].ljust(payload_bytes, b"p")
            if detect(rheos1(name, payload)) is None:
                assert b"\0" in name
                waiting.add(name_bytes)
    assert waiting == {3, 4, 5}


def test_the_byte_cap_settles_what_would_wait_for_more() -> None:
    size = len(BOTH_FIT)
    assert detect(BOTH_FIT[:-1], bytes_max=size) is None
    for judge in (detect, conclude):
        for data in (BOTH_FIT, BOTH_FIT + CHECKSUM + b"more"):
            with pytest.raises(UnrecognisedProtocol):
                judge(data, bytes_max=size)
    assert assert_monotone(BOTH_FIT + CHECKSUM, bytes_max=size) == size
    assert detect(BOTH_FIT + CHECKSUM, bytes_max=size + 1) == RHEOS2


def test_the_byte_cap_does_not_touch_what_is_settled_within_it() -> None:
    data = bytes.fromhex(GOLDEN[0][1])
    assert detect(data, bytes_max=2) == HERALD_LITTLE
    with pytest.raises(UnrecognisedProtocol):
        detect(data, bytes_max=1)


# --- Any bytes ------------------------------------------------------------------------------------

VALID = [bytes.fromhex(row[1]) for row in GOLDEN] + [BOTH_FIT + CHECKSUM, BOTH_FIT * 2]


@given(st.sampled_from([b"", b"\x00", b"\x01\x00", b"\xfa", b"\xfa\x08\x00\x00\x00"]), st.binary())
def test_random_bytes_give_one_answer_for_every_cut(start: bytes, rest: bytes) -> None:
    assert_monotone(start + rest)
    assert_monotone(start + rest, bytes_max=24)


@given(st.sampled_from(VALID), st.integers(0, 2**32), st.binary(max_size=8))
def test_mutated_packets_give_one_answer_for_every_cut(
    valid: bytes, seed: int, more: bytes
) -> None:
    data = bytearray(valid + more)
    choose = random.Random(seed)
    for _ in range(choose.randrange(1, 4)):
        data[choose.randrange(min(len(data), 32))] = choose.choice((0, 1, 2, 4, 0x7F, 0x80, 0xFF))
    assert_monotone(bytes(data))


@given(st.binary(max_size=64), st.binary(max_size=600))
def test_whole_packets_of_each_version_are_never_taken_for_nothing(
    name: bytes, payload: bytes
) -> None:
    assert conclude(rheos1(name, payload)) in (RHEOS1, RHEOS2)
    assert detect(rheos2(name, payload)) == RHEOS2
    if b"\0" not in name:
        assert detect(rheos1(name, payload)) == RHEOS1


@pytest.mark.parametrize(
    ("body_bytes", "text", "version"),
    [
        (12, "0300616263 05", RHEOS1),  # 3 bytes of data for v2 would be 03, not 61
        (12, "0300616263", RHEOS1),
        (70_000, "0300 6711", RHEOS2),  # data of 69,993 bytes does not fit v1
        (12, "0300 0300", None),
        (12, "0300", None),
        (12, "03", None),
        (12, "", None),
    ],
)
def test_the_end_of_the_input_leaves_the_version_that_still_fits(
    body_bytes: int, text: str, version: Detected | None
) -> None:
    data = b"\xfa" + body_bytes.to_bytes(4, "little") + bytes(17) + bytes.fromhex(text)
    assert detect(data) is None
    assert conclude(data) == version
