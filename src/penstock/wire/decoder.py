"""What every decoder promises, written once: any cut of the stream, sticky failure, no surprise."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from penstock.errors import WireError

__all__ = ["Buffer", "Decoder", "Rejected"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Received bytes, which a codec reads and never keeps."""

Packet = TypeVar("Packet")


@dataclasses.dataclass(frozen=True, slots=True)
class Rejected:
    """A whole frame whose content its protocol does not allow; the stream goes on behind it."""

    error: WireError


class Decoder(ABC, Generic[Packet]):
    """Cuts the bytes of one direction of one connection into packets.

    `feed` takes bytes however they were cut; iteration gives what is complete: packets, and
    `Rejected` for whole frames that break a rule. Where framing is lost, `WireError` is raised,
    then and ever after. Nothing else is raised for any input.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failure: WireError | None = None

    def feed(self, data: Buffer) -> None:
        """Take the next bytes of the stream; after a failure they are dropped."""
        if self._failure is None:
            self._buffer += data

    def __iter__(self) -> Iterator[Packet | Rejected]:
        """Give every complete packet; raise WireError where framing is lost."""
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
        """How many bytes wait for the rest of their packet."""
        return len(self._buffer)

    @abstractmethod
    def decode_at(self, data: Buffer, start: int) -> tuple[Packet | Rejected, int] | None:
        """Return the packet at `start` and where it ends, or None if more bytes are needed.

        Every length is judged as soon as it is there. Raise WireError where framing is lost.
        """
