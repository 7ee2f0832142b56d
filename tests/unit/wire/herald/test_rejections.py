"""What herald forbids, each with the error the specification names for it."""

import itertools

import pytest

from penstock.errors import BadMagic, FieldOutOfRange, OutOfSequence, WireError
from penstock.wire import herald
from penstock.wire.decoder import Rejected
from penstock.wire.herald import encoder as operations
from penstock.wire.herald.states import BROKER, CLIENT, BrokerState, ClientState
from tests.support.streams import assert_every_cut_agrees, assert_stays_failed, decode_all

PING = bytes.fromhex("FECA2000000000")

REJECTED = [
    ("PUBLISH without a channel", "FECA1000000000", herald.MalformedMessage),
    ("MESSAGE shorter than channel and timestamp", "FECA1308000000" + "00" * 8, herald.MalformedMessage),
    ("SUBSCRIBE without a channel", "FECA1100000000", herald.MalformedMessage),
    ("SUBSCRIBE with two channels", "FECA11020000000102", herald.MalformedMessage),
    ("UNSUBSCRIBE without a channel", "FECA1200000000", herald.MalformedMessage),
    ("UNSUBSCRIBE with two channels", "FECA12020000000102", herald.MalformedMessage),
    ("DISCONNECT with a body", "FECA040100000000", herald.MalformedMessage),
    ("PING with a body", "FECA200100000000", herald.MalformedMessage),
    ("PONG with a body", "FECA210100000000", herald.MalformedMessage),
    ("ERROR without a code", "FECAFF00000000", herald.MalformedMessage),
    ("ERROR with two codes", "FECAFF020000000101", herald.MalformedMessage),
    ("ERROR with code 0", "FECAFF0100000000", herald.MalformedMessage),
    ("ERROR with an unknown code", "FECAFF0100000009", herald.MalformedMessage),
    ("HANDSHAKE_ACK of 8 bytes", "FECA0308000000" + "00" * 8, herald.MalformedMessage),
    ("HANDSHAKE_ACK of 10 bytes", "FECA030A000000" + "00" * 10, herald.MalformedMessage),
    ("HANDSHAKE_ACK with an unknown status", "FECA0309000000" + "63" + "00" * 8, herald.MalformedMessage),
    ("HANDSHAKE_PUB empty", "FECA0100000000", herald.InvalidHandshake),
    ("HANDSHAKE_PUB without a client id length", "FECA010100000005", herald.InvalidHandshake),
    ("HANDSHAKE_PUB client id cut short", "FECA010300000005 02 61", herald.InvalidHandshake),
    ("HANDSHAKE_PUB with trailing bytes", "FECA010400000005 01 6161", herald.InvalidHandshake),
    ("HANDSHAKE_PUB client id not UTF-8", "FECA010300000005 01 FF", herald.InvalidHandshake),
    ("HANDSHAKE_SUB empty", "FECA0200000000", herald.InvalidHandshake),
    ("HANDSHAKE_SUB ends in its channels", "FECA0202000000 02 01", herald.InvalidHandshake),
    ("HANDSHAKE_SUB without a client id length", "FECA0202000000 01 01", herald.InvalidHandshake),
    ("HANDSHAKE_SUB with trailing bytes", "FECA0203000000 00 00 00", herald.InvalidHandshake),
    ("HANDSHAKE_SUB client id not UTF-8", "FECA0203000000 00 01 80", herald.InvalidHandshake),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "text", "error"), REJECTED, ids=[row[0] for row in REJECTED])
def test_a_bad_body_is_rejected_and_the_stream_goes_on(
    _name: str, text: str, error: type[WireError]
) -> None:
    frame = bytes.fromhex(text)
    items = assert_every_cut_agrees(herald.Decoder, frame + PING)
    assert items[0][:2] == ("rejected", error)
    assert items[1:] == [herald.Ping()]
    result = herald.decode(frame)
    assert (result.message, result.need_more_data, result.bytes_consumed) == (
        None,
        False,
        len(frame),
    )


def test_every_opcode_outside_the_table_is_invalid() -> None:
    for opcode in set(range(256)) - set(herald.OpCode):
        frame = bytes.fromhex(f"FECA{opcode:02X}0200000001 02")
        [item, ping] = decode_all(herald.Decoder(), [frame + PING])
        assert item == ("rejected", herald.InvalidOpCode, (opcode,))
        assert ping == herald.Ping()


@pytest.mark.parametrize("text", ["00", "FE00", "CAFE", "FA", "CACA"])
def test_a_wrong_magic_loses_framing_at_its_first_wrong_byte(text: str) -> None:
    assert_stays_failed(herald.Decoder(), bytes.fromhex(text), BadMagic)
    # The specification's own interface judges a header when it is complete.
    assert herald.decode(bytes.fromhex(text)).need_more_data
    whole = bytes.fromhex(text).ljust(7, b"\x00")
    assert isinstance(herald.decode(whole).error, BadMagic)


def test_a_length_above_the_maximum_is_judged_before_its_body_is_there() -> None:
    allowed = bytes.fromhex("FECA10") + (1_048_576).to_bytes(4, "little")
    assert herald.decode(allowed).need_more_data
    beyond = bytes.fromhex("FECA10") + (1_048_577).to_bytes(4, "little")
    result = herald.decode(beyond)
    assert isinstance(result.error, herald.MessageTooLarge)
    assert not result.need_more_data
    assert_stays_failed(herald.Decoder(), beyond, herald.MessageTooLarge)


def test_fewer_bytes_than_a_header_need_more() -> None:
    for size in range(7):
        assert herald.decode(PING[:size]).need_more_data
        for anything in (bytes(size), b"\xff" * size, b"GET / HTTP"[:size]):
            assert herald.MessageDecoder().decode(anything) == herald.ParseResult(
                need_more_data=True
            )


def test_a_decoded_payload_is_a_view_of_the_callers_buffer() -> None:
    data = bytearray.fromhex("FECA 10 06000000 07 68656C6C6F FECA 20 00000000")
    decoder = herald.MessageDecoder()
    result = decoder.decode(data)
    assert result.message is not None
    assert (result.bytes_consumed, result.need_more_data, result.error) == (13, False, None)
    assert result.message.opcode is herald.OpCode.PUBLISH
    data[8:13] = b"HELLO"
    assert result.message.payload_view == b"\x07HELLO"
    assert result.message.packet() == herald.Publish(7, b"HELLO")
    following = decoder.decode(memoryview(data)[result.bytes_consumed :])
    assert following.message is not None
    assert following.message.opcode is herald.OpCode.PING
    assert len(following.message.payload_view) == 0


def test_a_decoder_returns_neither_message_nor_need_for_an_invalid_frame() -> None:
    for frame, error, consumed in (
        ("FECB 20 00000000", BadMagic, 0),
        ("FECA 10 01001000", herald.MessageTooLarge, 0),
        ("FECA 30 02000000 0102", herald.InvalidOpCode, 9),
    ):
        result = herald.MessageDecoder().decode(bytes.fromhex(frame))
        assert (result.message, result.need_more_data) == (None, False)
        assert isinstance(result.error, error)
        assert result.bytes_consumed == consumed


def test_each_rejection_names_the_error_frame_that_answers_it() -> None:
    answers = {
        herald.InvalidHandshake("x"): herald.ErrorCode.INVALID_HANDSHAKE,
        herald.InvalidOpCode(3): herald.ErrorCode.INVALID_OPCODE,
        herald.MalformedMessage("x"): herald.ErrorCode.MALFORMED_MESSAGE,
        herald.MessageTooLarge(2, 1): herald.ErrorCode.MESSAGE_TOO_LARGE,
    }
    for error, answer in answers.items():
        assert error.answer is answer
        assert str(error)


@pytest.mark.parametrize(
    "packet",
    [
        herald.Publish(256, b""),
        herald.Publish(-1, b""),
        herald.Publish(0, bytes(1_048_576)),
        herald.Message(256, 0, b""),
        herald.Message(0, 2**64, b""),
        herald.Message(0, 0, bytes(1_048_568)),
        herald.HandshakePub(0, "x" * 256),
        herald.HandshakeSub(bytes(256), ""),
        herald.HandshakeAck(2**64),
        herald.Subscribe(256),
        herald.Unsubscribe(-1),
    ],
)
def test_the_encoder_refuses_what_does_not_fit(packet: herald.Packet) -> None:
    with pytest.raises(FieldOutOfRange):
        herald.encode(packet)


def test_the_encoder_refuses_a_buffer_that_is_too_small() -> None:
    with pytest.raises(FieldOutOfRange):
        operations.encode_ping(bytearray(6))


EXAMPLES: list[herald.Packet] = [
    herald.HandshakePub(1, "a"),
    herald.HandshakeSub(b"\x01", "a"),
    herald.HandshakeAck(1),
    herald.Disconnect(),
    herald.Publish(1, b""),
    herald.Subscribe(1),
    herald.Unsubscribe(1),
    herald.Message(1, 2, b""),
    herald.Ping(),
    herald.Pong(),
    herald.Error(herald.ErrorCode.UNAUTHORIZED),
]


def test_the_broker_allows_exactly_these_moves() -> None:
    awaiting, pub, sub, both, closed = BrokerState
    legal = {
        (awaiting, "HandshakePub"): pub,
        (awaiting, "HandshakeSub"): sub,
        (awaiting, "Disconnect"): closed,
        (pub, "HandshakeSub"): both,
        (sub, "HandshakePub"): both,
        (pub, "Publish"): pub,
        (both, "Publish"): both,
        (sub, "Subscribe"): sub,
        (both, "Subscribe"): both,
        (sub, "Unsubscribe"): sub,
        (both, "Unsubscribe"): both,
        **{(state, name): state for state in (pub, sub, both) for name in ("Ping", "Pong")},
        **{(state, "Disconnect"): closed for state in (pub, sub, both)},
    }
    for state, packet in itertools.product(BrokerState, EXAMPLES):
        expected = legal.get((state, type(packet).__name__))
        if expected is None:
            with pytest.raises(OutOfSequence):
                BROKER.advance(state, packet)
        else:
            assert BROKER.advance(state, packet) is expected


def test_the_client_allows_exactly_these_moves() -> None:
    awaiting, opened, closed = ClientState
    legal = {
        (awaiting, "HandshakeAck"): opened,
        (awaiting, "Error"): awaiting,
        (awaiting, "Ping"): awaiting,  # over UDP, until the address is proven
        (awaiting, "Disconnect"): closed,
        (opened, "Disconnect"): closed,
        **{(opened, name): opened for name in ("HandshakeAck", "Message", "Error", "Ping", "Pong")},
    }
    for state, packet in itertools.product(ClientState, EXAMPLES):
        expected = legal.get((state, type(packet).__name__))
        if expected is None:
            with pytest.raises(OutOfSequence):
                CLIENT.advance(state, packet)
        else:
            assert CLIENT.advance(state, packet) is expected


def test_a_rejected_item_carries_its_error() -> None:
    decoder = herald.Decoder()
    decoder.feed(bytes.fromhex("FECA9900000000"))
    [item] = decoder
    assert isinstance(item, Rejected)
    assert isinstance(item.error, herald.InvalidOpCode)
