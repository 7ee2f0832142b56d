"""What is found in a capture, in the order in which it is told."""

import enum
from typing import NamedTuple, TypeAlias

from penstock.decode.layout import Field
from penstock.model import ByteOrder

__all__ = ["Fault", "Finding", "Frame", "Heading", "Trouble", "TroubleKind"]


class Heading(NamedTuple):
    """A connection begins: `protocol` is empty where none is recognised, and `note` says why."""

    connection: int
    name: str
    protocol: str
    order: ByteOrder | None
    note: str = ""


class Fault(NamedTuple):
    """What is wrong, by the name that the protocol has for it, and where in the stream."""

    name: str
    offset: int
    text: str


class Frame(NamedTuple):
    """A whole frame; `start` and `end` are positions in what its sender sent."""

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
    """Why bytes are not in a frame."""

    LOST = "lost"
    """The protocol cannot say where the next frame starts."""
    GAP = "gap"
    """The capture lacks bytes."""
    SKIPPED = "skipped"
    """Bytes that were passed over to find the next frame."""
    CUT_SHORT = "cut short"
    """The capture ends inside a frame."""
    UNREAD = "unread"
    """Bytes behind the place where reading stopped."""


class Trouble(NamedTuple):
    """Bytes that are in no whole frame; `data` are those that `fields` explain."""

    connection: int
    from_client: bool
    kind: TroubleKind
    offset: int
    length: int
    fault: Fault
    data: bytes = b""
    fields: tuple[Field, ...] = ()


Finding: TypeAlias = Heading | Frame | Trouble
