"""Values that every layer uses: byte orders, kinds, topic names and message ids."""

import enum
import re
from typing import Final, Literal

__all__ = [
    "DEDUPE_HEADER",
    "NO_MESSAGE_OFFSET",
    "RESERVED_HEADER_PREFIX",
    "TEMPORARY_OFFSET",
    "ByteOrder",
    "Durability",
    "Form",
    "Kind",
    "binary_topic_name",
    "is_publishable",
    "is_reserved_header",
    "message_id",
    "split_message_id",
    "topic_name_from_binary",
]


ByteOrder = Literal["little", "big"]

DEDUPE_HEADER: Final = "penstock-dedupe"
"""The header with a message's key, for deduplication: the one reserved name that clients send."""
RESERVED_HEADER_PREFIX: Final = "penstock-"
"""Headers whose names begin so are set by the broker alone: they mark hook calls."""


class Kind(enum.IntEnum):
    """The kind of a message: column `kind` of the record schema."""

    PUBLISH = 0
    REQUEST = 1
    REPLY = 2
    NOTIFY = 3
    BROADCAST = 4

    @property
    def label(self) -> str:
        """The name in the record schema."""
        return self.name.lower()


class Form(enum.IntEnum):
    """How a value was encoded in its frame, for protocols with several encodings; for replay."""

    PLAIN = 0
    """The frame's payload, unchanged."""
    EMPTY = 1
    """A message without a payload."""
    TEXT = 2
    """Text: a LamaMQ string, or the content of a fleximq `str`."""
    BINARY = 3
    """The content of a fleximq `bin`."""
    MESSAGEPACK = 4
    """Any other fleximq payload, whole."""


class Durability(enum.IntEnum):
    """The write that an acknowledgment waits for, the weakest first."""

    MEMORY = 0
    OS = 1
    FSYNC = 2


# --- Topic names ------------------------------------------------------------------------------
#
# A topic is a UTF-8 name. Rheos names are bytes: a byte that is not UTF-8 becomes `%XX`, and a
# literal `%` that looks like such an escape becomes `%25`. So every byte string has one canonical
# name, and the name converts back to the same bytes.

_WILDCARD_LEVELS: Final = frozenset({"+", "*", "#", ">"})
_WILDCARD: Final = re.compile(r"[+*#>]")
_ESCAPE_IN_BYTES: Final = re.compile(rb"%(?=25|[89A-F][0-9A-F])")
_ESCAPE_IN_NAME: Final = re.compile(rb"%(25|[89A-F][0-9A-F])")
_SURROGATE_BASE: Final = 0xDC00  # where "surrogateescape" puts the bytes it could not decode


def topic_name_from_binary(name: bytes) -> str:
    """Return the canonical topic name of a Rheos name, which may hold any bytes."""
    if b"%" in name:
        name = _ESCAPE_IN_BYTES.sub(b"%25", name)
    text = name.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    return "".join(
        f"%{ord(character) - _SURROGATE_BASE:02X}"
        if "\udc80" <= character <= "\udcff"
        else character
        for character in text
    )


def binary_topic_name(name: str) -> bytes:
    """Return the Rheos name of a canonical topic name.

    A name that no byte string converts to (it has a needless escape, for example) cannot be
    addressed from Rheos; its UTF-8 bytes are returned.
    """
    plain = name.encode()
    if b"%" not in plain:
        return plain
    restored = _ESCAPE_IN_NAME.sub(lambda match: bytes([int(match[1], 16)]), plain)
    return restored if topic_name_from_binary(restored) == name else plain


def is_publishable(name: str) -> bool:
    """Return whether `name` can be published to: it is not empty and has no wildcard level."""
    if _WILDCARD.search(name) is None:
        return bool(name)
    return _WILDCARD_LEVELS.isdisjoint(name.replace(".", "/").split("/"))


def is_reserved_header(key: str) -> bool:
    """Return whether only the broker may set a header of this name."""
    return key.startswith(RESERVED_HEADER_PREFIX)


# --- Message ids ------------------------------------------------------------------------------
#
# A message id is a UUIDv8 (RFC 9562, big-endian):
#
#      0               48   52            64 66                              128
#      ┌───────────────┬────┬─────────────┬──┬───────────────────────────────┐
#      │ log id (48)   │  8 │ partition   │10│ offset (62)                   │
#      └───────────────┴────┴─────────────┴──┴───────────────────────────────┘

NO_MESSAGE_OFFSET: Final = (1 << 62) - 1
"""The offset in the message id of a failed acknowledgment: no message has it."""
TEMPORARY_OFFSET: Final = NO_MESSAGE_OFFSET - 1
"""Likewise, if a refused subscription may succeed later or at another node."""


def message_id(log_id: int, *, partition: int, offset: int) -> bytes:
    """Return the 16 bytes of the id of the message at `offset` of `partition` in log `log_id`.

    Raise ValueError unless log_id fits 48 bits, partition 12 and offset 62.
    """
    if log_id >> 48 or partition >> 12 or offset >> 62:
        raise ValueError(f"no message id for log {log_id}, partition {partition}, offset {offset}")
    return (log_id << 80 | 8 << 76 | partition << 64 | 2 << 62 | offset).to_bytes(16, "big")


def split_message_id(identifier: bytes) -> tuple[int, int, int]:
    """Return (log id, partition, offset) of a message id; raise ValueError if it is not one."""
    number = int.from_bytes(identifier, "big")
    if len(identifier) != 16 or number >> 76 & 0xF != 8 or number >> 62 & 3 != 2:
        raise ValueError(f"not a message id: {identifier.hex()}")
    return number >> 80, number >> 64 & 0xFFF, number & NO_MESSAGE_OFFSET
