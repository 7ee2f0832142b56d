"""Readings: how to decode captures of a protocol, with its codec and its layouts."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from penstock.decode.layout import Layout
from penstock.errors import WireError
from penstock.model import ByteOrder
from penstock.protocols import Protocol, load
from penstock.wire.decoder import Buffer, Decoder

__all__ = ["Reading", "Side", "error_code", "reading_of"]


class Side(ABC):
    """One direction of a connection.

    Every frame has `mark` at `mark_at`, by which frames can be found again; without a mark they
    cannot.
    """

    mark: bytes = b""
    mark_at: ClassVar[int] = 0

    def __init__(self, decoder: Decoder[Any], order: ByteOrder) -> None:
        self._decoder = decoder
        self.order: ByteOrder = order

    def decode_at(self, data: Buffer, start: int) -> tuple[Any, int] | None:
        """Return the packet at `start` and its end, as `wire.decoder.Decoder` does."""
        return self._decoder.decode_at(data, start)

    @abstractmethod
    def layout(self, data: bytes) -> tuple[str, Layout]:
        """Return name and layout of the frame that is next and starts with `data`."""

    def passed(self, packet: Any) -> None:  # noqa: ANN401
        """Update the state after a packet was read."""
        del packet

    def blamed(self, error: WireError, data: bytes) -> tuple[str, ...]:
        """Return the names of fields that `error` may be about, if no field has a fault itself."""
        del error, data
        return ()


def error_code(error: WireError) -> str:
    """Return the name of an error that has none in the protocol."""
    return error.code.replace("-", "_").upper()


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How to recognise and decode the connections of a protocol in a capture."""

    sides: Callable[[ByteOrder, bool], tuple[Side, Side]]
    """Returns the client's side and the server's, in a byte order; the flag says that only one of
    the two was captured."""
    is_client: Callable[[bytes], bool]
    """Returns whether a client can start with these bytes."""
    is_server: Callable[[bytes], bool]
    """Returns whether bytes that no client starts with belong to this protocol."""
    order: Callable[[bytes, bytes], ByteOrder]
    """Returns the byte order, from the client's first bytes, which may be empty, and any others."""
    error_name: Callable[[WireError], str] = error_code
    """Returns the name that the protocol has for an error."""
    sides_start_alike: bool = False
    """Whether the first bytes of a server can look like those of a client."""
    first_packet_end: Callable[[bytes, ByteOrder], int] = lambda data, order: 0  # noqa: ARG005
    """Returns where a client's first packet ends if only the answer shows it; else 0."""


def reading_of(protocol: Protocol) -> Reading:
    """Return the reading of a protocol."""
    reading: Reading = load(protocol.decode)
    return reading
