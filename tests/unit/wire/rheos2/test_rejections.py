"""What Rheos v2 forbids, each with the error the specification names for it."""

import pickle
from typing import Self

import pytest

from penstock.errors import BadMagic, FieldOutOfRange, FrameTooLarge, OutOfSequence
from penstock.protocols.rheos2 import RHEOS_BODY_BYTES_MAX
from penstock.wire import rheos2
from penstock.wire.decoder import Rejected
from penstock.wire.rheos2 import BROKER, CLIENT, AckCode, BrokerState, ClientState, OpCode
from tests.support.streams import assert_every_cut_agrees, assert_stays_failed, decode_all
from tests.unit.wire.rheos2.checksum import sealed

ID = bytes(range(16))
ID_HEX = "000102030405060708090A0B0C0D0E0F"
DECODERS = [rheos2.BrokerDecoder, rheos2.ClientDecoder]

GOOD = rheos2.Event(ID, OpCode.PUBLISH, b"ab", b"cde")
GOOD_FRAME = sealed(f"FA 0B000000 {ID_HEX} 02  0200 03000000 6162 636465")
ACK = rheos2.Acknowledgment(AckCode.SUCCESS, ID)
ACK_FRAME = sealed(f"AC 00 {ID_HEX}")


class Huge(bytes):
    """Claims a length that no test could allocate."""

    def __new__(cls, _size: int) -> Self:
        return super().__new__(cls)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


CORRUPTED_BODIES = [
    ("body empty", "00000000", ""),
    ("body of one byte", "01000000", "00"),
    ("body without a data length", "02000000", "0000"),
    ("body with part of a data length", "05000000", "0000 000000"),
    ("body with a byte behind it", "07000000", "0000 00000000 00"),
    ("body one byte short by its header", "0A000000", "0200 03000000 6162 6364"),
    ("body one byte long by its header", "0C000000", "0200 03000000 6162 636465 66"),
    ("name length one too small", "0B000000", "0100 03000000 6162 636465"),
    ("name length one too large", "0B000000", "0300 03000000 6162 636465"),
    ("name length the largest", "0B000000", "FFFF 03000000 6162 636465"),
    ("data length one too small", "0B000000", "0200 02000000 6162 636465"),
    ("data length one too large", "0B000000", "0200 04000000 6162 636465"),
    ("data length the largest", "0B000000", "0200 FFFFFFFF 6162 636465"),
    ("data length right but for its third byte", "0B000000", "0200 03000100 6162 636465"),
]  # fmt: skip


@pytest.mark.parametrize("make", DECODERS)
@pytest.mark.parametrize(
    ("_name", "length", "body"), CORRUPTED_BODIES, ids=[row[0] for row in CORRUPTED_BODIES]
)
def test_lengths_that_do_not_add_up_are_rejected_and_the_stream_goes_on(
    make: type, _name: str, length: str, body: str
) -> None:
    frame = sealed(f"FA {length} {ID_HEX} 02 {body}")
    items = assert_every_cut_agrees(make, frame + GOOD_FRAME)
    assert items[0][:2] == ("rejected", rheos2.CorruptedData)
    assert items[1:] == [GOOD]


@pytest.mark.parametrize("make", DECODERS)
@pytest.mark.parametrize(
    "body",
    ["0200 03000000 6162 636465", "0200 03000000 6162 6364", ""],
    ids=["good", "bad", "empty"],
)
def test_every_opcode_outside_the_table_is_invalid_whatever_the_body(make: type, body: str) -> None:
    length = len(bytes.fromhex(body))
    for opcode in range(3, 256):
        frame = sealed(f"FA {length:02X}000000 {ID_HEX} {opcode:02X} {body}")
        items = decode_all(make(), [frame + GOOD_FRAME])
        assert items == [("rejected", rheos2.InvalidOperation, (opcode,)), GOOD]


def test_an_invalid_opcode_is_cut_out_of_the_stream_wherever_it_is_cut() -> None:
    frame = sealed(f"FA 06000000 {ID_HEX} 03 0000 00000000")
    items = assert_every_cut_agrees(rheos2.BrokerDecoder, frame + GOOD_FRAME)
    assert items == [("rejected", rheos2.InvalidOperation, (3,)), GOOD]


def test_every_ack_code_outside_the_table_is_rejected_and_the_stream_goes_on() -> None:
    for code in range(2, 256):
        frame = sealed(f"AC {code:02X} {ID_HEX}")
        [item, ack] = decode_all(rheos2.ClientDecoder(), [frame + ACK_FRAME])
        assert item[:2] == ("rejected", rheos2.CorruptedData)
        assert ack == ACK
    items = assert_every_cut_agrees(rheos2.ClientDecoder, frame + ACK_FRAME)
    assert [type(item) for item in items] == [tuple, rheos2.Acknowledgment]


def test_a_wrong_magic_loses_framing_at_its_first_byte() -> None:
    for first in range(256):
        if first != 0xFA:
            assert_stays_failed(rheos2.BrokerDecoder(), bytes([first]), BadMagic)
        if first not in (0xFA, 0xAC):
            assert_stays_failed(rheos2.ClientDecoder(), bytes([first]), BadMagic)


@pytest.mark.parametrize(
    ("make", "stream", "packets", "found_and_expected"),
    [
        (rheos2.BrokerDecoder, GOOD_FRAME + ACK_FRAME, [GOOD], (b"\xac", b"\xfa")),
        (
            rheos2.ClientDecoder,
            ACK_FRAME + GOOD_FRAME + b"\x15",
            [ACK, GOOD],
            (b"\x15", b"\xfa", b"\xac"),
        ),
    ],
)
def test_what_comes_before_a_loss_of_framing_is_given(
    make: type, stream: bytes, packets: list[rheos2.Packet], found_and_expected: tuple[bytes, ...]
) -> None:
    for cut in range(len(stream)):
        decoder = make()
        given = []
        with pytest.raises(BadMagic) as caught:  # noqa: PT012
            for chunk in (stream[:cut], stream[cut:]):
                decoder.feed(chunk)
                for item in decoder:
                    given.append(item)  # noqa: PERF402
        assert given == packets
        assert (caught.value.found, *caught.value.expected) == found_and_expected


@pytest.mark.parametrize("make", DECODERS)
def test_a_wrong_checksum_loses_framing(make: type) -> None:
    for at in range(1, 5):
        frame = bytearray(GOOD_FRAME)
        frame[-at] ^= 0xFF
        items = assert_every_cut_agrees(make, bytes(frame) + GOOD_FRAME)
        [(outcome, error, _)] = items
        assert (outcome, error) == ("failed", rheos2.CorruptedData)
        assert_stays_failed(make(), bytes(frame), rheos2.CorruptedData)


def test_a_big_endian_checksum_is_wrong() -> None:
    frame = GOOD_FRAME[:-4] + GOOD_FRAME[:-5:-1]
    assert_stays_failed(rheos2.BrokerDecoder(), frame, rheos2.CorruptedData)


def test_a_wrong_checksum_of_an_acknowledgment_loses_framing() -> None:
    for at in range(1, 5):
        frame = bytearray(ACK_FRAME)
        frame[-at] ^= 0xFF
        items = assert_every_cut_agrees(rheos2.ClientDecoder, bytes(frame) + ACK_FRAME)
        [(outcome, error, _)] = items
        assert (outcome, error) == ("failed", rheos2.CorruptedData)
        assert_stays_failed(rheos2.ClientDecoder(), bytes(frame), rheos2.CorruptedData)


def test_the_checksum_is_judged_before_opcode_body_and_ack_code() -> None:
    wrong = "00000000"
    for frame in (
        f"FA 06000000 {ID_HEX} 09 0000 00000000 {wrong}",
        f"FA 06000000 {ID_HEX} 02 0100 00000000 {wrong}",
        f"FA 00000000 {ID_HEX} 02 {wrong}",
        f"AC 09 {ID_HEX} {wrong}",
    ):
        assert_stays_failed(rheos2.ClientDecoder(), bytes.fromhex(frame), rheos2.CorruptedData)


@pytest.mark.parametrize("make", DECODERS)
def test_a_body_above_the_limit_is_judged_before_the_rest_of_its_header_is_there(
    make: type,
) -> None:
    most = RHEOS_BODY_BYTES_MAX
    allowed = b"\xfa" + most.to_bytes(4, "little")
    assert make().decode_at(allowed, 0) is None
    beyond = b"\xfa" + (most + 1).to_bytes(4, "little")
    for size in range(1, 5):
        assert make().decode_at(beyond[:size], 0) is None
    assert_stays_failed(make(), beyond, FrameTooLarge)
    assert_stays_failed(make(), bytes.fromhex("FA FFFFFFFF"), FrameTooLarge)


@pytest.mark.parametrize("make", DECODERS)
def test_the_limit_is_the_callers(make: type) -> None:
    assert make(body_bytes_max=11).decode_at(GOOD_FRAME, 0) == (GOOD, 37)
    items = assert_every_cut_agrees(lambda: make(body_bytes_max=10), GOOD_FRAME)
    assert items == [("failed", FrameTooLarge, ("body", 11, 10))]


LONG_FRAME = sealed(f"FA 3D000000 {ID_HEX} 02 0300 34000000 612F62" + "5A" * 52)


@pytest.mark.parametrize(
    ("make", "frame"),
    [
        (rheos2.BrokerDecoder, GOOD_FRAME),
        (rheos2.ClientDecoder, GOOD_FRAME),
        (rheos2.BrokerDecoder, LONG_FRAME),
        (rheos2.ClientDecoder, LONG_FRAME),
        (rheos2.ClientDecoder, ACK_FRAME),
    ],
)
def test_a_single_flipped_bit_never_gives_a_packet(make: type, frame: bytes) -> None:
    for bit in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        alone = decode_all(make(), [bytes(flipped)])
        assert not alone or alone[0][0] == "failed"  # a longer length only waits
        followed = decode_all(make(body_bytes_max=1024), [bytes(flipped) + bytes(1200)])
        [(outcome, error, _)] = followed
        assert outcome == "failed"
        assert error in (rheos2.CorruptedData, BadMagic, FrameTooLarge)


def test_kept_errors_do_not_hold_the_buffer() -> None:
    decoder = rheos2.ClientDecoder()
    kept = []
    for text in (f"FA 00000000 {ID_HEX} 02", f"FA 00000000 {ID_HEX} 03", f"AC 02 {ID_HEX}"):
        decoder.feed(sealed(text))
        kept += list(decoder)
    decoder.feed(GOOD_FRAME)
    assert list(decoder) == [GOOD]
    assert decoder.unread == 0
    assert [type(item.error) for item in kept if isinstance(item, Rejected)] == [
        rheos2.CorruptedData,
        rheos2.InvalidOperation,
        rheos2.CorruptedData,
    ]


def test_errors_of_the_decoders_pickle() -> None:
    decoder = rheos2.BrokerDecoder()
    decoder.feed(sealed(f"FA 00000000 {ID_HEX} 02") + GOOD_FRAME[:-1] + b"?")
    found: list[Exception] = []
    with pytest.raises(rheos2.CorruptedData) as caught:
        found.extend(item.error for item in decoder if isinstance(item, Rejected))
    for error in (*found, caught.value):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(again), again.args, str(again)) == (
            rheos2.CorruptedData,
            error.args,
            str(error),
        )


@pytest.mark.parametrize(
    ("packet", "field"),
    [
        (rheos2.Event(ID, OpCode.PUBLISH, b"n" * 65_536, b""), "name length"),
        (rheos2.Event(ID, OpCode.PUBLISH, b"", Huge(2**32)), "data length"),
        (rheos2.Event(ID, OpCode.PUBLISH, b"", Huge(2**32 - 6)), "body length"),
        (rheos2.Event(ID, OpCode.PUBLISH, b"n", Huge(2**32 - 7)), "body length"),
        (rheos2.Event(ID, OpCode.INVALID_OPERATION, b"", b""), "operation code"),
        (rheos2.Event(ID[:15], OpCode.PUBLISH, b"", b""), "client id length"),
        (rheos2.Event(ID + b"x", OpCode.PUBLISH, b"", b""), "client id length"),
        (rheos2.Event(b"", OpCode.PUBLISH, b"", b""), "client id length"),
        (rheos2.Acknowledgment(AckCode.SUCCESS, ID[:15]), "message id length"),
        (rheos2.Acknowledgment(AckCode.SUCCESS, ID + b"x"), "message id length"),
        (rheos2.Acknowledgment(2, ID), "acknowledgment code"),  # type: ignore[arg-type]
    ],
)
def test_the_encoder_refuses_what_does_not_fit(packet: rheos2.Packet, field: str) -> None:
    with pytest.raises(FieldOutOfRange) as caught:
        rheos2.encode(packet)
    assert caught.value.field == field


EXAMPLES: list[rheos2.Packet] = [GOOD, ACK]


def test_the_broker_receives_exactly_these_packets() -> None:
    [opened] = BrokerState
    for packet in EXAMPLES:
        if type(packet).__name__ == "Event":
            assert BROKER.advance(opened, packet) is opened
        else:
            with pytest.raises(OutOfSequence):
                BROKER.advance(opened, packet)


def test_the_client_receives_exactly_these_packets() -> None:
    [opened] = ClientState
    for packet in EXAMPLES:
        if type(packet).__name__ in {"Acknowledgment", "Event"}:
            assert CLIENT.advance(opened, packet) is opened
        else:
            with pytest.raises(OutOfSequence):
                CLIENT.advance(opened, packet)
