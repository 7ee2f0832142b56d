"""The broker's own subscription to topics: a link that has no peer, and keeps what it gets."""

from collections import deque
from collections.abc import Callable, Iterator

from penstock._kernels.gathered import Gathered
from penstock.core.broker import Broker
from penstock.limits import SERVICE_QUEUE_BYTES_MAX
from penstock.ports import Handler
from penstock.protocols.fleximq import FLEXIMQ_MESSAGE_BYTES_CEILING
from penstock.wire.decoder import Rejected
from penstock.wire.fleximq import ClientDecoder, Message

__all__ = ["ServiceInbox"]


class ServiceInbox:
    """A `ports.Link` whose messages are processed in later turns of the event loop.

    Not at once: they are written while the batch that has them is delivered. Above
    SERVICE_QUEUE_BYTES_MAX it is congested, and treated as a client that reads slowly.
    """

    connection = 0
    peer = "broker"
    host = ""
    certificate_names: frozenset[str] = frozenset()
    has_left = False

    def __init__(self, broker: Broker, process: Callable[[Message], None]) -> None:
        self.account = broker.memory.open(always=True)
        self.account.close()  # the queue has a limit of its own
        self._broker = broker
        self._process = process
        self._decoder = ClientDecoder(message_bytes_max=FLEXIMQ_MESSAGE_BYTES_CEILING)
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._busy = False
        self.drained: Callable[[], None] = _do_nothing

    @property
    def buffered(self) -> int:
        """Bytes of messages that are not processed yet."""
        return self._buffered

    @property
    def congested(self) -> bool:
        """Whether too many are waiting."""
        return self._buffered > SERVICE_QUEUE_BYTES_MAX

    def write(self, data: bytes | memoryview) -> None:
        """Queue messages."""
        self._chunks.append(bytes(data))
        self._buffered += len(data)
        self._wake()

    def write_gathered(self, frames: Gathered) -> None:
        """Queue messages."""
        self.write(frames.copied())

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            self._broker.slices.add(self._run())

    def _run(self) -> Iterator[None]:
        """Process all messages, one in each step."""
        try:
            while self._chunks:
                yield from self._take(self._chunks.popleft())
        except Exception:  # the broker logs it; the messages behind are processed all the same
            self._busy = False
            if self._chunks:
                self._wake()
            raise
        self._busy = False

    def _take(self, chunk: bytes) -> Iterator[None]:
        self._decoder.feed(chunk)
        try:
            for message in self._decoder:
                if not isinstance(message, Rejected):
                    self._process(message)
                yield
        finally:
            was_congested = self.congested
            self._buffered -= len(chunk)
        if was_congested and not self.congested:
            self.drained()

    def set_handler(self, handler: Handler) -> None:
        """Do nothing: there is no peer."""

    def pause(self) -> None:
        """Do nothing: there is no peer."""

    def resume(self) -> None:
        """Do nothing: there is no peer."""

    def close(self) -> None:
        """Do nothing: it lasts as long as the broker."""

    def abort(self) -> None:
        """Do nothing: it lasts as long as the broker."""


def _do_nothing() -> None:
    pass
