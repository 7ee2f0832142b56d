"""Golden vectors of herald, typed in from the tables of the specification."""

import pytest

from penstock.wire import herald
from penstock.wire.herald import encoder as operations

# name, packet, little-endian frame, big-endian frame
GOLDEN = [
    (
        "HANDSHAKE_PUB",
        herald.HandshakePub(5, "dev-1"),
        "FECA 01 07000000  05 05 6465762D31",
        "CAFE 01 00000007  05 05 6465762D31",
    ),
    (
        "HANDSHAKE_SUB",
        herald.HandshakeSub(bytes([1, 2, 255]), "s"),
        "FECA 02 06000000  03 0102FF 01 73",
        "CAFE 02 00000006  03 0102FF 01 73",
    ),
    (
        "HANDSHAKE_ACK",
        herald.HandshakeAck(0x1122334455667788),
        "FECA 03 09000000  00 8877665544332211",
        "CAFE 03 00000009  00 1122334455667788",
    ),
    (
        "HANDSHAKE_ACK refused",
        herald.HandshakeAck(0, herald.ErrorCode.UNAUTHORIZED),
        "FECA 03 09000000  08 0000000000000000",
        "CAFE 03 00000009  08 0000000000000000",
    ),
    ("DISCONNECT", herald.Disconnect(), "FECA 04 00000000", "CAFE 04 00000000"),
    (
        "PUBLISH",
        herald.Publish(7, b"hello"),
        "FECA 10 06000000  07 68656C6C6F",
        "CAFE 10 00000006  07 68656C6C6F",
    ),
    ("PUBLISH empty", herald.Publish(0, b""), "FECA 10 01000000 00", "CAFE 10 00000001 00"),
    ("SUBSCRIBE", herald.Subscribe(9), "FECA 11 01000000 09", "CAFE 11 00000001 09"),
    ("UNSUBSCRIBE", herald.Unsubscribe(255), "FECA 12 01000000 FF", "CAFE 12 00000001 FF"),
    (
        "MESSAGE",
        herald.Message(7, 0x0006_0B4F_AC2E_1234, b"hi"),
        "FECA 13 0B000000  07 34122EAC4F0B0600 6869",
        "CAFE 13 0000000B  07 00060B4FAC2E1234 6869",
    ),
    ("PING", herald.Ping(), "FECA 20 00000000", "CAFE 20 00000000"),
    ("PONG", herald.Pong(), "FECA 21 00000000", "CAFE 21 00000000"),
    *(
        (
            f"ERROR {code}",
            herald.Error(code),
            f"FECA FF 01000000 {code:02X}",
            f"CAFE FF 00000001 {code:02X}",
        )
        for code in herald.ErrorCode
    ),
]

IDS = [name for name, *_ in GOLDEN]


@pytest.mark.parametrize(("_name", "packet", "little", "big"), GOLDEN, ids=IDS)
def test_encodes_to_the_specified_bytes(
    _name: str, packet: herald.Packet, little: str, big: str
) -> None:
    assert herald.encode(packet) == bytes.fromhex(little)
    assert herald.encode(packet, order="big") == bytes.fromhex(big)


@pytest.mark.parametrize(("_name", "packet", "little", "big"), GOLDEN, ids=IDS)
def test_decodes_from_the_specified_bytes(
    _name: str, packet: herald.Packet, little: str, big: str
) -> None:
    for order, text in (("little", little), ("big", big)):
        frame = bytes.fromhex(text)
        assert herald.decode(frame, order=order) == herald.ParseResult(
            bytes_consumed=len(frame), message=packet
        )


def test_opcodes_and_error_codes_are_those_of_the_tables() -> None:
    assert {code.name: code.value for code in herald.OpCode} == {
        "HANDSHAKE_PUB": 1, "HANDSHAKE_SUB": 2, "HANDSHAKE_ACK": 3, "DISCONNECT": 4,
        "PUBLISH": 16, "SUBSCRIBE": 17, "UNSUBSCRIBE": 18, "MESSAGE": 19,
        "PING": 32, "PONG": 33, "ERROR": 255,
    }  # fmt: skip
    assert {code.name: code.value for code in herald.ErrorCode} == {
        "INVALID_HANDSHAKE": 1, "CHANNEL_NOT_FOUND": 2, "MESSAGE_TOO_LARGE": 3,
        "RATE_LIMIT_EXCEEDED": 4, "PROTOCOL_VERSION_MISMATCH": 5, "INVALID_OPCODE": 6,
        "MALFORMED_MESSAGE": 7, "UNAUTHORIZED": 8,
    }  # fmt: skip


def test_size_operations_give_the_specified_totals() -> None:
    assert operations.size_handshake_pub(b"abc") == 7 + 2 + 3
    assert operations.size_handshake_sub(b"\x01\x02", b"abc") == 7 + 1 + 2 + 1 + 3
    assert operations.size_handshake_ack() == 16
    assert operations.size_publish(b"12345") == 7 + 1 + 5
    assert operations.size_message(b"12345") == 7 + 1 + 8 + 5
    assert operations.size_subscribe() == operations.size_unsubscribe() == 8
    assert operations.size_disconnect() == operations.size_ping() == operations.size_pong() == 7
    assert operations.size_error() == 8


def test_encode_operations_write_to_the_callers_buffer() -> None:
    cases = [
        (operations.encode_handshake_pub, (5, "dev-1"), {}, "HANDSHAKE_PUB"),
        (operations.encode_handshake_sub, (bytes([1, 2, 255]), "s"), {}, "HANDSHAKE_SUB"),
        (operations.encode_handshake_ack, (0x1122334455667788, None), {}, "HANDSHAKE_ACK"),
        (operations.encode_disconnect, (), {}, "DISCONNECT"),
        (operations.encode_publish, (7, b"hello"), {}, "PUBLISH"),
        (operations.encode_subscribe, (9,), {}, "SUBSCRIBE"),
        (operations.encode_unsubscribe, (255,), {}, "UNSUBSCRIBE"),
        (
            operations.encode_message,
            (b"hi",),
            {"channel": 7, "timestamp": 0x0006_0B4F_AC2E_1234},
            "MESSAGE",
        ),
        (operations.encode_ping, (), {}, "PING"),
        (operations.encode_pong, (), {}, "PONG"),
        (operations.encode_error, (herald.ErrorCode(3),), {}, "ERROR 3"),
    ]
    golden = {name: bytes.fromhex(little) for name, _, little, _ in GOLDEN}
    for operation, arguments, keywords, name in cases:
        frame = golden[name]
        buffer = bytearray(b"\xaa" * (len(frame) + 3))
        assert operation(buffer, *arguments, **keywords) == len(frame)  # type: ignore[operator]
        assert buffer == frame + b"\xaa" * 3
