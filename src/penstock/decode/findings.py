"""Findings of a decoded capture, in the order of output."""

import enum
from typing import NamedTuple, TypeAlias

from penstock.decode.layout import Field
from penstock.model import ByteOrder

__all__ = ["Fault", "Finding", "Frame", "Heading", "Trouble", "TroubleKind"]


class Heading(NamedTuple):
    """Start of a connection; an unrecognised `protocol` is empty, with the reason in `note`."""

    connection: int
    name: str
    protocol: str
    order: ByteOrder | None
    note: str = ""


class Fault(NamedTuple):
    """A fault: the protocol's name for it, its position in the stream, and a text."""

    name: str
    offset: int
    text: str


class Frame(NamedTuple):
    """A complete frame; `start` and `end` are positions in the stream of its sender."""

    connection: int
    from_client: bool
    number: int
    start: int
    end: int
    name: str
    data: bytes
    fields: list[Field]
    fault: Fault | None = None


class TroubleKind(enum.StrEnum):
    """Reason why bytes are not part of a frame."""

    LOST = "lost"
    """Framing is lost: the start of the next frame is unknown."""
    GAP = "gap"
    """The capture lacks bytes."""
    SKIPPED = "skipped"
    """Bytes skipped in the search for the next frame."""
    CUT_SHORT = "cut short"
    """The capture ends inside a frame."""
    UNREAD = "unread"
    """Bytes after the position at which decoding stopped."""


class Trouble(NamedTuple):
    """Bytes outside of complete frames; `fields` describe those in `data`."""

    connection: int
    from_client: bool
    kind: TroubleKind
    offset: int
    length: int
    fault: Fault
    data: bytes = b""
    fields: tuple[Field, ...] = ()


Finding: TypeAlias = Heading | Frame | Trouble
