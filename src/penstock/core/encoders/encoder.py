"""The encoder of one protocol, and what all encoders of a broker share."""

import dataclasses
import secrets
from abc import ABC, abstractmethod
from typing import Final, TypeAlias

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.counters import Counters
from penstock.limits import FORWARDS_RECALLED_MAX
from penstock.model import ByteOrder

__all__ = ["Encoder", "EncoderContext", "ForwardIds", "Rows"]

_NUMBERS: Final = 0x7FFF_FFFF

Rows: TypeAlias = "memoryview[int] | None"
"""Row numbers of a batch, None for all of them."""


class ForwardIds:
    """Message ids of the broker's own messages: 31 bits, wrapping around.

    The first one is random, so that clients that count their own ids do not meet them by accident.
    """

    def __init__(self) -> None:
        self._next = secrets.randbits(31)
        self._taken = 0

    def take(self, count: int = 1) -> int:
        """Return the first of `count` numbers."""
        first = self._next
        self._next = (first + count) & _NUMBERS
        self._taken += count
        return first

    @property
    def upcoming(self) -> int:
        """The number that is taken next."""
        return self._next

    def is_recent(self, number: int) -> bool:
        """Return whether a number is one of the last FORWARDS_RECALLED_MAX that were taken."""
        age = (self._next - number - 1) & _NUMBERS
        return age < min(self._taken, FORWARDS_RECALLED_MAX)


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderContext:
    """The state of a broker that encoders need."""

    topics: TopicTable
    counters: Counters
    forward_ids: ForwardIds


class Encoder(ABC):
    """Encodes deliveries of one protocol."""

    def __init__(self, context: EncoderContext) -> None:
        self.context = context
        self.fitting: Rows = None
        """The rows that are encoded: an encoder that leaves some out sets it."""

    @abstractmethod
    def encode(self, batch: Batch, rows: Rows, *, order: ByteOrder) -> bytes:
        """Return the frames of `rows`.

        Rows that the protocol cannot carry are left out and counted.
        """
