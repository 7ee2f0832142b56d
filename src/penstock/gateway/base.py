"""What every gateway does alike: let the kernel take runs, the codec the rest, in their order."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from penstock.core.broker import Broker
from penstock.core.routing import Encoding
from penstock.core.sessions import Session
from penstock.errors import CallerError, OutOfSequence, PeerError, WireError
from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder, Protocol
from penstock.ports import Link
from penstock.wire.decoder import Decoder, Rejected

__all__ = ["Gateway"]


class Gateway(ABC):
    """One connection of one protocol: a `ports.Handler`.

    A protocol says how to scan, what a packet means and how its errors are put into words.
    """

    protocol: ClassVar[Protocol]

    def __init__(
        self, broker: Broker, link: Link, options: GatewayOptions, *, order: ByteOrder
    ) -> None:
        self.broker = broker
        self.link = link
        self.options = options
        self.order: ByteOrder = order
        self.session: Session | None = None
        self.decoder = self.new_decoder()
        self._suspended = False
        self._closed = False

    # --- What a protocol brings -------------------------------------------------------------------

    @abstractmethod
    def new_decoder(self) -> Decoder[Any]:
        """Return the decoder of what a client sends."""

    @abstractmethod
    def scan(self, session: Session, data: memoryview, start: int) -> int:
        """Fill the broker's batch from `start`; return where the run ends."""

    @abstractmethod
    def published(self, session: Session, first_offset: int) -> None:
        """Acknowledge the broker's batch, where the protocol has acknowledgments."""

    @abstractmethod
    def topic_of(self, packet: Any) -> str | None:  # noqa: ANN401
        """Return the topic of a plain publish, None for every other packet."""

    @abstractmethod
    def handle(self, packet: Any) -> None:  # noqa: ANN401
        """Do what a packet asks that is not a plain publish; raise OutOfSequence if it may not."""

    @abstractmethod
    def refuse_publish(self, packet: Any, error: PeerError | CallerError) -> None:  # noqa: ANN401
        """Answer a publish that is not taken."""

    @abstractmethod
    def rejected(self, error: WireError) -> None:
        """Answer a frame whose content is wrong, or that comes out of sequence."""

    @abstractmethod
    def framing_lost(self, error: WireError) -> None:
        """Answer bytes after which nothing can be read, where the protocol can; then it closes."""

    # --- The loop ---------------------------------------------------------------------------------

    def received(self, data: memoryview) -> int:
        """See ports.Handler."""
        position = 0
        size = len(data)
        try:
            while position < size and not self._suspended and not self._closed:
                if self.session is not None and self.publishes:
                    position = self._take_run(self.session, data, position)
                    if position == size:
                        break
                step = self.decoder.decode_at(data, position)
                if step is None:
                    break
                packet, end = step
                position = self._take_packet(packet, data, position, end)
        except WireError as error:
            self.broker.counters.frames_rejected[self.protocol] += 1
            self.framing_lost(error)
            self.close()
        finally:
            self.broker.batch.clear()
        return size if self._closed else position

    @property
    def publishes(self) -> bool:
        """Whether publish frames may come now."""
        return True

    def _take_run(self, session: Session, data: memoryview, start: int) -> int:
        end = self.scan(session, data, start)
        batch = self.broker.batch
        if len(batch):
            first = self.broker.publish(session, batch)
            self.published(session, first)
        return end

    def _take_packet(self, packet: Any, data: memoryview, start: int, end: int) -> int:  # noqa: ANN401
        """Do what the packet from `start` to `end` asks; return up to where all is done."""
        if isinstance(packet, Rejected):
            self.broker.counters.frames_rejected[self.protocol] += 1
            self.rejected(packet.error)
            return end
        topic = self.topic_of(packet) if self.session is not None and self.publishes else None
        if topic is None:
            try:
                self.handle(packet)
            except OutOfSequence as error:
                self.broker.counters.frames_rejected[self.protocol] += 1
                self.rejected(error)
            return end
        session = self.session
        if session is None:
            raise AssertionError("a publish without a session")
        try:
            self.admit(session, topic)
        except (PeerError, CallerError) as error:
            self.refuse_publish(packet, error)
            return end
        # What was in the way is gone: the kernel takes the frame now, and what follows it.
        end = self._take_run(session, data, start)
        if end == start:
            raise AssertionError(f"a {self.protocol.label} publish that no kernel takes")
        return end

    def admit(self, session: Session, topic: str) -> None:
        """Judge the topic of a publish that the scan stopped at; raise what refuses it."""
        self.broker.admit(session, topic)

    # --- Ends -------------------------------------------------------------------------------------

    @property
    def encoding(self) -> Encoding:
        """How deliveries to this client are written."""
        return Encoding(self.protocol, self.order)

    def suspend(self) -> None:
        """Take no more packets until `proceed`; the one at hand is being thought about."""
        self._suspended = True
        self.link.pause()

    def proceed(self) -> None:
        """Go on where `suspend` stopped."""
        self._suspended = False
        if not self._closed:
            self.link.resume()

    def close(self) -> None:
        """End the connection when all answers are sent."""
        if not self._closed:
            self._closed = True
            self.link.close()

    def drained(self) -> None:
        """See ports.Handler."""
        if self.session is not None:
            self.broker.drained(self.session)

    def lost(self, reason: str) -> None:  # noqa: ARG002
        """See ports.Handler."""
        self._closed = True
        if self.session is not None:
            self.broker.close(self.session)
            self.session = None
