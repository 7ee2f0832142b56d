"""The role of one side of a captured connection.

A role decodes with the kernel of its protocol where that is possible, else with the codec. Bytes of
a client are decoded as a broker does, bytes of a broker as a client does. Only messages become
records: handshakes, subscriptions, acknowledgments and keep-alive do not.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from penstock._kernels.batch import Batch, Sender
from penstock._kernels.fleximq import HeaderCache
from penstock._kernels.topics import TopicTable
from penstock.limits import TOPICS_MAX
from penstock.model import ByteOrder, Kind
from penstock.protocols import Protocol, load
from penstock.wire import fleximq
from penstock.wire.decoder import Decoder

__all__ = ["NO_SENDER", "CaptureContext", "Captured", "CapturedSide", "Role", "new_role"]

NO_SENDER: Final = Sender(bytes(16), 0)


class Captured(NamedTuple):
    """The message of a packet; a `timestamp_us` of 0 means that there is none."""

    topic: str
    value: bytes
    sender: str
    kind: Kind = Kind.PUBLISH
    timestamp_us: int = 0
    created_us: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    correlation: str | None = None
    status: int | None = None


class CaptureContext:
    """State that the captures of one task share. `channels` maps herald channels to topics."""

    def __init__(
        self, channels: Mapping[int, str] | None = None, *, topics_max: int = TOPICS_MAX
    ) -> None:
        named = dict(channels or {})
        self.channels = [named.get(number, f"channel/{number}") for number in range(256)]
        self.topics = TopicTable(capacity=topics_max)
        self.batch = Batch()
        self.headers = HeaderCache(fleximq.publication)
        for number, name in enumerate(self.channels):
            self.topics.bind_channel(number, name)


class Role(ABC):
    """Decodes one side of a connection; without a kernel, the codec decodes all messages."""

    protocol: ClassVar[Protocol]
    has_kernel: ClassVar[bool] = True

    def __init__(self, decoder: Decoder[Any], context: CaptureContext, order: ByteOrder) -> None:
        self.decoder = decoder
        self.context = context
        self.order: ByteOrder = order
        self.sender = ""

    def scan(self, data: memoryview, start: int) -> int:
        """Fill the batch of the context with a run of messages; return where the run ends."""
        del data
        self.context.batch.clear()
        return start

    def decode_at(self, data: memoryview, start: int) -> tuple[Any, int] | None:
        """Return the packet at `start` and its end, as `wire.decoder.Decoder` does."""
        return self.decoder.decode_at(data, start)

    @abstractmethod
    def record(self, packet: Any) -> Captured | None:  # noqa: ANN401
        """Return a packet's message, or None; raise OutOfSequence if this side never sends it."""


class CapturedSide(NamedTuple):
    """One side of a captured connection; `first_bytes` are from this side."""

    order: ByteOrder
    context: CaptureContext
    from_client: bool
    first_bytes: bytes


def new_role(protocol: Protocol, side: CapturedSide) -> Role:
    """Return the role for one side of a connection."""
    role: Callable[[CapturedSide], Role] = load(protocol.capture)
    return role(side)
