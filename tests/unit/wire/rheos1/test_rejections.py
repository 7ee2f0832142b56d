"""What Rheos v1 forbids, each with the error the specification names for it."""

import pickle

import pytest

from penstock.errors import BadMagic, FieldOutOfRange, FrameTooLarge, OutOfSequence, WireError
from penstock.protocols.rheos1 import RHEOS1_BODY_BYTES_MAX
from penstock.protocols.rheos2 import RHEOS_BODY_BYTES_MAX
from penstock.wire import rheos1
from penstock.wire.decoder import Rejected
from penstock.wire.rheos1 import BROKER, CLIENT, AckCode, BrokerState, ClientState, OpCode
from tests.support.streams import assert_every_cut_agrees, assert_stays_failed, decode_all

ID = bytes(range(16))
ID_HEX = "000102030405060708090A0B0C0D0E0F"

GOOD = rheos1.Request(ID, OpCode.PUBLISH, b"ab", b"cde")
GOOD_FRAME = bytes.fromhex(f"FA 09000000 {ID_HEX} 02  0200 6162 0300 636465")
ACK = rheos1.Acknowledgment(ID, AckCode.SUCCESS)
ACK_FRAME = bytes.fromhex(f"AC {ID_HEX} 00")


class Huge(bytes):
    """Claims a length that no test could allocate."""

    def __len__(self) -> int:
        return 2**32


CORRUPTED_TOPICS = [
    ("body empty", "00000000", ""),
    ("body of one byte", "01000000", "00"),
    ("body without a payload length", "02000000", "0000"),
    ("body with half a payload length", "03000000", "0000 00"),
    ("body with a byte behind it", "05000000", "0000 0000 00"),
    ("body one byte short by its header", "08000000", "0200 6162 0300 6364"),
    ("body one byte long by its header", "0A000000", "0200 6162 0300 636465 66"),
    ("name length one too small", "09000000", "0100 6162 0300 636465"),
    ("name length one too large", "09000000", "0300 6162 0300 636465"),
    ("payload length one too small", "09000000", "0200 6162 0200 636465"),
    ("payload length one too large", "09000000", "0200 6162 0400 636465"),
    ("name reaches the end of the body", "09000000", "0700 6162 0300 636465"),
    ("name leaves one byte of the body", "09000000", "0600 6162 0300 636465"),
    ("name length the largest", "09000000", "FFFF 6162 0300 636465"),
    ("payload length the largest", "09000000", "0200 6162 FFFF 636465"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_name", "length", "body"), CORRUPTED_TOPICS, ids=[row[0] for row in CORRUPTED_TOPICS]
)
def test_a_body_that_is_not_exactly_one_topic_is_rejected_and_the_stream_goes_on(
    _name: str, length: str, body: str
) -> None:
    frame = bytes.fromhex(f"FA {length} {ID_HEX} 02 {body}")
    items = assert_every_cut_agrees(rheos1.BrokerDecoder, frame + GOOD_FRAME)
    assert items[0][:2] == ("rejected", rheos1.CorruptedTopic)
    assert items[1:] == [GOOD]
    with pytest.raises(rheos1.CorruptedTopic):
        rheos1.decode_topic(bytes.fromhex(body))


@pytest.mark.parametrize("body", ["0200 6162 0300 636465", "0200 6162 0300 6364"])
def test_every_opcode_outside_the_table_is_invalid_whatever_the_body(body: str) -> None:
    content = bytes.fromhex(body)
    for opcode in range(3, 256):
        frame = bytes.fromhex(f"FA {len(content):02X}000000 {ID_HEX} {opcode:02X}") + content
        items = decode_all(rheos1.BrokerDecoder(), [frame + GOOD_FRAME])
        assert items == [("rejected", rheos1.InvalidOperation, (opcode,)), GOOD]


def test_an_invalid_opcode_is_cut_out_of_the_stream_wherever_it_is_cut() -> None:
    frame = bytes.fromhex(f"FA 04000000 {ID_HEX} 03 0000 0000")
    items = assert_every_cut_agrees(rheos1.BrokerDecoder, frame + GOOD_FRAME)
    assert items == [("rejected", rheos1.InvalidOperation, (3,)), GOOD]


def test_every_ack_code_outside_the_table_is_rejected_and_the_stream_goes_on() -> None:
    for code in range(2, 256):
        frame = bytes.fromhex(f"AC {ID_HEX} {code:02X}")
        [item, ack] = decode_all(rheos1.ClientDecoder(), [frame + ACK_FRAME])
        assert item[:2] == ("rejected", rheos1.CorruptedData)
        assert ack == ACK
    items = assert_every_cut_agrees(rheos1.ClientDecoder, frame + ACK_FRAME)
    assert [type(item) for item in items] == [tuple, rheos1.Acknowledgment]


def test_a_wrong_magic_loses_framing_at_its_first_byte() -> None:
    for first in range(256):
        if first != 0xFA:
            assert_stays_failed(rheos1.BrokerDecoder(), bytes([first]), BadMagic)
        if first not in (0xAC, 21):
            assert_stays_failed(rheos1.ClientDecoder(), bytes([first]), BadMagic)


@pytest.mark.parametrize(
    ("make", "stream", "packets", "found_and_expected"),
    [
        (rheos1.BrokerDecoder, GOOD_FRAME + ACK_FRAME, [GOOD], (b"\xac", b"\xfa")),
        (rheos1.ClientDecoder, ACK_FRAME + GOOD_FRAME, [ACK], (b"\xfa", b"\xac", b"\x15")),
    ],
)
def test_what_comes_before_a_loss_of_framing_is_given(
    make: type, stream: bytes, packets: list[rheos1.Packet], found_and_expected: tuple[bytes, ...]
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


def test_a_body_above_the_limit_is_judged_before_the_rest_of_its_header_is_there() -> None:
    most = RHEOS1_BODY_BYTES_MAX
    allowed = b"\xfa" + most.to_bytes(4, "little")
    assert rheos1.BrokerDecoder().decode_at(allowed, 0) is None
    beyond = b"\xfa" + (most + 1).to_bytes(4, "little")
    for size in range(1, 5):
        assert rheos1.BrokerDecoder().decode_at(beyond[:size], 0) is None
    assert_stays_failed(rheos1.BrokerDecoder(), beyond, FrameTooLarge)
    assert_stays_failed(rheos1.BrokerDecoder(), bytes.fromhex("FA FFFFFFFF"), FrameTooLarge)


def test_a_response_above_the_limit_is_judged_before_the_rest_of_its_header_is_there() -> None:
    most = RHEOS_BODY_BYTES_MAX
    allowed = b"\x15" + most.to_bytes(4, "little")
    assert rheos1.ClientDecoder().decode_at(allowed, 0) is None
    beyond = b"\x15" + (most + 1).to_bytes(4, "little")
    for size in range(1, 5):
        assert rheos1.ClientDecoder().decode_at(beyond[:size], 0) is None
    assert_stays_failed(rheos1.ClientDecoder(), beyond, rheos1.TranslationError)
    assert_stays_failed(
        rheos1.ClientDecoder(), bytes.fromhex("15 FFFFFFFF"), rheos1.TranslationError
    )


def test_the_limit_is_the_callers() -> None:
    assert rheos1.BrokerDecoder(body_bytes_max=9).decode_at(GOOD_FRAME, 0) == (GOOD, 31)
    items = assert_every_cut_agrees(lambda: rheos1.BrokerDecoder(body_bytes_max=8), GOOD_FRAME)
    assert items == [("failed", FrameTooLarge, ("body", 9, 8))]
    response = bytes.fromhex(f"15 03000000 {ID_HEX} 616263")
    decoder = rheos1.ClientDecoder(body_bytes_max=3)
    assert decoder.decode_at(response, 0) == (rheos1.Response(ID, b"abc"), 24)
    items = assert_every_cut_agrees(lambda: rheos1.ClientDecoder(body_bytes_max=2), response)
    assert items == [("failed", rheos1.TranslationError, (3, 2))]


def test_kept_rejections_do_not_hold_the_buffer() -> None:
    decoder = rheos1.BrokerDecoder()
    kept = []
    for opcode in ("02", "03"):
        decoder.feed(bytes.fromhex(f"FA 05000000 {ID_HEX} {opcode} 0000 0000 00"))
        kept += list(decoder)
    decoder.feed(GOOD_FRAME)
    assert list(decoder) == [GOOD]
    assert decoder.unread == 0
    assert [type(item.error) for item in kept if isinstance(item, Rejected)] == [
        rheos1.CorruptedTopic,
        rheos1.InvalidOperation,
    ]


def test_errors_of_the_decoders_pickle() -> None:
    streams = {
        "FA 00000000" + ID_HEX + "02": rheos1.CorruptedTopic,
        "FA 00000000" + ID_HEX + "09": rheos1.InvalidOperation,
    }
    for text, error in streams.items():
        decoder = rheos1.BrokerDecoder()
        decoder.feed(bytes.fromhex(text))
        [item] = decoder
        assert isinstance(item, Rejected)
        again = pickle.loads(pickle.dumps(item.error))  # noqa: S301
        assert (type(again), again.args, str(again)) == (error, item.error.args, str(item.error))


@pytest.mark.parametrize(
    ("packet", "field"),
    [
        (rheos1.Request(ID, OpCode.PUBLISH, b"n" * 65_536, b""), "name length"),
        (rheos1.Request(ID, OpCode.PUBLISH, b"", b"p" * 65_536), "payload length"),
        (rheos1.Request(ID, OpCode.INVALID_OPERATION, b"", b""), "operation code"),
        (rheos1.Request(ID[:15], OpCode.PUBLISH, b"", b""), "client id length"),
        (rheos1.Request(ID + b"x", OpCode.PUBLISH, b"", b""), "client id length"),
        (rheos1.Request(b"", OpCode.PUBLISH, b"", b""), "client id length"),
        (rheos1.Acknowledgment(ID[:15], AckCode.SUCCESS), "message id length"),
        (rheos1.Acknowledgment(ID + b"x", AckCode.SUCCESS), "message id length"),
        (rheos1.Acknowledgment(ID, 2), "acknowledgment code"),  # type: ignore[arg-type]
        (rheos1.Response(ID[:15], b""), "sender id length"),
        (rheos1.Response(ID + b"x", b""), "sender id length"),
        (rheos1.Response(ID, Huge()), "payload length"),
    ],
)
def test_the_encoder_refuses_what_does_not_fit(packet: rheos1.Packet, field: str) -> None:
    with pytest.raises(FieldOutOfRange) as caught:
        rheos1.encode(packet)
    assert caught.value.field == field


EXAMPLES: list[rheos1.Packet] = [GOOD, ACK, rheos1.Response(ID, b"")]


def test_the_broker_receives_exactly_these_packets() -> None:
    [opened] = BrokerState
    for packet in EXAMPLES:
        if type(packet).__name__ == "Request":
            assert BROKER.advance(opened, packet) is opened
        else:
            with pytest.raises(OutOfSequence):
                BROKER.advance(opened, packet)


def test_the_client_receives_exactly_these_packets() -> None:
    [opened] = ClientState
    for packet in EXAMPLES:
        if type(packet).__name__ in {"Acknowledgment", "Response"}:
            assert CLIENT.advance(opened, packet) is opened
        else:
            with pytest.raises(OutOfSequence):
                CLIENT.advance(opened, packet)


def test_every_decoding_error_is_a_wire_error() -> None:
    for error in (rheos1.CorruptedTopic, rheos1.InvalidOperation, rheos1.TranslationError):
        assert issubclass(error, WireError)
