"""Common part of both versions of Rheos: header, codes, errors, helpers of the specification.

    0        1            5              21       22
    ┌────────┬────────────┬──────────────┬────────┬───────────────┐
    │ magic  │ length     │ client id    │ opcode │ body          │
    │ u8     │ u32        │ 16 bytes     │ u8     │ length bytes  │
    └────────┴────────────┴──────────────┴────────┴───────────────┘

Integers are little-endian. `length` counts the body only, not the checksum of v2 after it.
"""

import enum
import struct
from typing import Final, TypeAlias

from penstock.errors import FieldOutOfRange, FrameTooLarge, WireError

__all__ = [
    "ACK_MAGIC",
    "CONTENT_LENGTH",
    "CONTENT_LENGTH_END",
    "CONTENT_LENGTH_START",
    "HEADER",
    "HEADER_BYTES",
    "IDENTIFIER_BYTES",
    "MAGIC",
    "U16_MAX",
    "U32_MAX",
    "AckCode",
    "CorruptedData",
    "CorruptedTopic",
    "DuplicateTopic",
    "InvalidOperation",
    "OpCode",
    "RheosError",
    "TopicNotFound",
    "TranslationError",
    "body_end_at",
    "check",
    "check_ack_code",
    "check_identifier",
    "check_opcode",
    "get_ack_code",
    "get_client_id",
    "get_content_length",
    "get_opcode",
    "is_rheos_protocol",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 0xFA
ACK_MAGIC: Final = 0xAC
HEADER_BYTES: Final = 22
IDENTIFIER_BYTES: Final = 16
"""Size of client, sender and message ids; any 16 bytes are valid."""

HEADER: Final = struct.Struct("<BI16sB")
CONTENT_LENGTH: Final = struct.Struct("<I")
CONTENT_LENGTH_START: Final = 1
CONTENT_LENGTH_END: Final = 5

U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1


class OpCode(enum.IntEnum):
    """Operation codes; INVALID_OPERATION is reserved and never valid on the wire."""

    CREATE = 0
    SUBSCRIBE = 1
    PUBLISH = 2
    INVALID_OPERATION = 3


class AckCode(enum.IntEnum):
    """Acknowledgment codes."""

    SUCCESS = 0
    FAILED = 1


_OPCODES: Final = {int(code): code for code in OpCode if code is not OpCode.INVALID_OPERATION}
_ACK_CODES: Final = {int(code): code for code in AckCode}


# --- Errors, by the specifications' names ---------------------------------------------------------


class RheosError(WireError):
    """A fault that the specifications name; the broker answers it with FAILED."""


class CorruptedData(RheosError):
    """A header, length, code or checksum is invalid."""

    code = "rheos-corrupted-data"
    template = "corrupted data: {reason}"

    reason: str


class InvalidOperation(RheosError):
    """An operation code that is reserved or unknown."""

    code = "rheos-invalid-operation"
    template = "invalid operation code {opcode}"

    opcode: int


class TranslationError(RheosError):
    """A response announces a larger payload than its limit: framing is lost."""

    code = "rheos-translation-error"
    template = "response payload of {size} bytes exceeds the limit of {size_max}"

    size: int
    size_max: int


class CorruptedTopic(RheosError):
    """The body of a request is not one complete topic encoding."""

    code = "rheos-corrupted-topic"
    template = "corrupted topic: {reason}"

    reason: str


class DuplicateTopic(RheosError):
    """CREATE names a topic that exists."""

    code = "rheos-duplicate-topic"
    template = "topic {name!r} exists already"

    name: bytes


class TopicNotFound(RheosError):
    """SUBSCRIBE or PUBLISH names a topic that does not exist."""

    code = "rheos-topic-not-found"
    template = "topic {name!r} does not exist"

    name: bytes


# --- The specification's helper operations (v1, section 5) ----------------------------------------


def is_rheos_protocol(data: Buffer) -> bool:
    """Return whether `data` starts with the magic byte."""
    return len(data) > 0 and data[0] == MAGIC


def get_content_length(header: Buffer) -> int:
    """Return the length of the body in bytes; raise CorruptedData if `data` is not a header."""
    _check_header(header)
    length: int = CONTENT_LENGTH.unpack_from(header, CONTENT_LENGTH_START)[0]
    return length


def get_opcode(opcode_byte: int) -> OpCode:
    """Return the operation of byte 21; raise InvalidOperation if it is reserved or unknown."""
    try:
        return _OPCODES[opcode_byte]
    except KeyError:
        raise InvalidOperation(opcode_byte) from None


def get_client_id(header: Buffer) -> bytes:
    """Return the 16 bytes of the client id; raise CorruptedData if `data` is not a header."""
    _check_header(header)
    return bytes(header[5:21])


def _check_header(header: Buffer) -> None:
    if len(header) < HEADER_BYTES:
        raise CorruptedData(f"header of {len(header)} bytes, {HEADER_BYTES} are needed")
    if not is_rheos_protocol(header):
        raise CorruptedData(f"header starts with 0x{header[0]:02x}, expected 0x{MAGIC:02x}")


# --- Checks of both decoders ----------------------------------------------------------------------


def body_end_at(data: Buffer, start: int, *, body_bytes_max: int) -> int | None:
    """Return the end of the body of the packet at `start`, None if its length is incomplete.

    Raise FrameTooLarge if the body is longer than `body_bytes_max`.
    """
    if len(data) < start + CONTENT_LENGTH_END:
        return None
    length: int = CONTENT_LENGTH.unpack_from(data, start + CONTENT_LENGTH_START)[0]
    if length > body_bytes_max:
        raise FrameTooLarge("body", length, body_bytes_max)
    return start + HEADER_BYTES + length


def get_ack_code(ack_byte: int) -> AckCode:
    """Return the acknowledgment code of a byte; raise CorruptedData if it is unknown."""
    try:
        return _ACK_CODES[ack_byte]
    except KeyError:
        raise CorruptedData(f"unknown acknowledgment code {ack_byte}") from None


# --- Checks of both encoders ----------------------------------------------------------------------


def check(field: str, value: int, value_max: int) -> None:
    """Raise FieldOutOfRange unless `value` is 0 to `value_max`."""
    if not 0 <= value <= value_max:
        raise FieldOutOfRange(field, value, value_max)


def check_identifier(field: str, identifier: bytes) -> None:
    """Raise FieldOutOfRange unless `identifier` is exactly 16 bytes."""
    if len(identifier) != IDENTIFIER_BYTES:
        raise FieldOutOfRange(
            f"{field} length", len(identifier), IDENTIFIER_BYTES, IDENTIFIER_BYTES
        )


def check_opcode(opcode: int) -> None:
    """Raise FieldOutOfRange unless `opcode` is valid on the wire."""
    check("operation code", opcode, OpCode.PUBLISH)


def check_ack_code(code: int) -> None:
    """Raise FieldOutOfRange unless `code` is valid on the wire."""
    check("acknowledgment code", code, AckCode.FAILED)
