"""What both versions of Rheos share: constants, errors and the specification's helpers."""

import pickle

import pytest

from penstock.errors import ErrorCode, FrameTooLarge, WireError
from penstock.wire import rheos

HEADER = bytes.fromhex("FA 04030201 000102030405060708090A0B0C0D0E0F 02")
BUFFERS = [bytes, bytearray, memoryview]


def test_the_constants_are_those_of_the_specifications() -> None:
    assert (rheos.MAGIC, rheos.ACK_MAGIC, rheos.HEADER_BYTES) == (0xFA, 0xAC, 22)
    assert {code.name: code.value for code in rheos.OpCode} == {
        "CREATE": 0, "SUBSCRIBE": 1, "PUBLISH": 2, "INVALID_OPERATION": 3,
    }  # fmt: skip
    assert {code.name: code.value for code in rheos.AckCode} == {"SUCCESS": 0, "FAILED": 1}
    assert rheos.HEADER.size == 22


@pytest.mark.parametrize("buffer", BUFFERS)
def test_the_helpers_read_a_header(buffer: type) -> None:
    assert rheos.is_rheos_protocol(buffer(HEADER))
    assert rheos.get_content_length(buffer(HEADER)) == 0x01020304
    assert rheos.get_client_id(buffer(HEADER)) == bytes(range(16))
    assert type(rheos.get_client_id(buffer(HEADER))) is bytes
    assert rheos.get_content_length(buffer(HEADER + b"body")) == 0x01020304
    assert rheos.get_client_id(buffer(HEADER + b"body")) == bytes(range(16))


@pytest.mark.parametrize("buffer", BUFFERS)
def test_only_the_magic_byte_makes_data_rheos(buffer: type) -> None:
    assert not rheos.is_rheos_protocol(buffer(b""))
    for first in range(256):
        assert rheos.is_rheos_protocol(buffer(bytes([first]))) is (first == 0xFA)


@pytest.mark.parametrize("helper", [rheos.get_content_length, rheos.get_client_id])
def test_the_helpers_refuse_what_is_no_header(helper: object) -> None:
    assert callable(helper)
    for size in range(22):
        with pytest.raises(rheos.CorruptedData):
            helper(HEADER[:size])
    for first in set(range(256)) - {0xFA}:
        with pytest.raises(rheos.CorruptedData):
            helper(bytes([first]) + HEADER[1:])


def test_three_opcodes_are_valid_and_every_other_byte_is_not() -> None:
    assert [rheos.get_opcode(byte) for byte in range(3)] == [
        rheos.OpCode.CREATE,
        rheos.OpCode.SUBSCRIBE,
        rheos.OpCode.PUBLISH,
    ]
    for byte in (-1, *range(3, 256)):
        with pytest.raises(rheos.InvalidOperation) as caught:
            rheos.get_opcode(byte)
        assert caught.value.opcode == byte


def test_two_ack_codes_are_valid_and_every_other_byte_is_not() -> None:
    assert [rheos.get_ack_code(byte) for byte in range(2)] == list(rheos.AckCode)
    for byte in (-1, *range(2, 256)):
        with pytest.raises(rheos.CorruptedData):
            rheos.get_ack_code(byte)


def test_a_body_length_is_judged_when_its_five_bytes_are_there() -> None:
    for size in range(5):
        assert rheos.body_end_at(HEADER[:size], 0, body_bytes_max=0) is None
    assert (
        rheos.body_end_at(b"??" + HEADER[:5], 2, body_bytes_max=0x01020304) == 2 + 22 + 0x01020304
    )
    with pytest.raises(FrameTooLarge):
        rheos.body_end_at(HEADER[:5], 0, body_bytes_max=0x01020303)


ERRORS = [
    (rheos.CorruptedData("x"), "rheos-corrupted-data", "corrupted data: x"),
    (rheos.InvalidOperation(9), "rheos-invalid-operation", "invalid operation code 9"),
    (
        rheos.TranslationError(2, 1),
        "rheos-translation-error",
        "response payload of 2 bytes exceeds the limit of 1",
    ),
    (rheos.CorruptedTopic("x"), "rheos-corrupted-topic", "corrupted topic: x"),
    (
        rheos.DuplicateTopic(b"\xff"),
        "rheos-duplicate-topic",
        r"topic b'\xff' exists already",
    ),
    (rheos.TopicNotFound(b"a"), "rheos-topic-not-found", "topic b'a' does not exist"),
]


@pytest.mark.parametrize(("error", "code", "text"), ERRORS)
def test_errors_carry_code_and_text_and_pickle(
    error: rheos.RheosError, code: ErrorCode, text: str
) -> None:
    assert isinstance(error, WireError)
    assert error.code == code
    assert str(error) == text
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))
