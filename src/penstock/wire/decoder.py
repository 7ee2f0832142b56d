"""The base class of all stream decoders."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from penstock.errors import WireError

__all__ = ["Buffer", "Decoder", "Rejected"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Received bytes. A codec reads them and keeps no reference."""

Packet = TypeVar("Packet")


@dataclasses.dataclass(frozen=True, slots=True)
class Rejected:
    """A complete frame whose content the protocol does not allow; decoding continues after it."""

    error: WireError


class Decoder(ABC, Generic[Packet]):
    """Decodes one direction of one connection into packets.

    `feed` takes chunks of any size. Iteration yields complete packets, and `Rejected` for complete
    frames that break a rule. If framing is lost, iteration raises WireError, and raises it again
    from then on. No input raises any other exception.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failure: WireError | None = None

    def feed(self, data: Buffer) -> None:
        """Add the next bytes of the stream; drop them after a failure."""
        if self._failure is None:
            self._buffer += data

    def __iter__(self) -> Iterator[Packet | Rejected]:
        """Yield every complete packet; raise WireError if framing is lost."""
        start = 0
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                step = self.decode_at(self._buffer, start)
                if step is None:
                    return
                packet, start = step
                yield packet
        except WireError as failure:
            self._failure = failure
            self._buffer.clear()
            start = 0
            raise
        finally:
            del self._buffer[:start]

    @property
    def unread(self) -> int:
        """Number of bytes of the incomplete packet."""
        return len(self._buffer)

    @abstractmethod
    def decode_at(self, data: Buffer, start: int) -> tuple[Packet | Rejected, int] | None:
        """Return the packet at `start` and its end, or None if more bytes are needed.

        Each length is checked as soon as it is complete. Raise WireError if framing is lost.
        """
