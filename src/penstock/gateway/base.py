"""What every gateway does alike: let the kernel take runs, the codec the rest, in their order."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

import structlog

from penstock.core.broker import Broker
from penstock.core.hooks import Event, EventKind, Inquiry
from penstock.core.rates import Allowance
from penstock.core.routing import Encoding
from penstock.core.sessions import Session
from penstock.core.timers import Timer
from penstock.errors import (
    CallerError,
    LogUnavailable,
    OutOfSequence,
    PeerError,
    TooManyMessages,
    WireError,
)
from penstock.gateway.options import GatewayOptions
from penstock.limits import BATCH_ROWS_MAX, LINGER_SECONDS_MAX, TURN_SECONDS_MAX
from penstock.model import ByteOrder, Protocol
from penstock.patterns import compile_pattern
from penstock.ports import Link, Receipt
from penstock.replay import split_replay
from penstock.wire.decoder import Decoder, Rejected

__all__ = ["NOT_WRITTEN", "NO_CREDENTIALS", "Gateway", "refuse"]

log = structlog.get_logger("penstock.gateway")

NOT_WRITTEN: Final = "it could not be written"
"""What is said of a message that was taken and is lost."""
NO_CREDENTIALS: Final = "no credentials"
"""Why a client of a protocol that has none is not let in, for the log."""


def refuse(broker: Broker, link: Link, reason: str) -> None:
    """Count and log a connection that is not served, and close it."""
    broker.counters.connections_failed[reason] += 1
    log.info("connection refused", connection=link.connection, peer=link.peer, reason=reason)
    link.close()


class Gateway(ABC):
    """One connection of one protocol: a `ports.Handler`.

    A protocol says how to scan, what a packet means and how its errors are put into words.
    """

    protocol: ClassVar[Protocol]
    refuses_above_rate: ClassVar[bool] = False
    """Whether a publish above the rate limit is answered; otherwise the client is read later."""

    def __init__(
        self, broker: Broker, link: Link, options: GatewayOptions, *, order: ByteOrder
    ) -> None:
        self.broker = broker
        self.link = link
        self.options = options
        self.order: ByteOrder = order
        self.session: Session | None = None
        self.decoder = self.new_decoder()
        self.allowance = Allowance(options.messages_per_second_max, broker.clock.monotonic())
        self._suspended = False
        self._unread = False
        self._closed = False
        self._inquiry: Inquiry | None = None
        self._handshake_deadline: Timer | None = None
        self._close_deadline: Timer | None = None

    # --- What a protocol brings -------------------------------------------------------------------

    @abstractmethod
    def new_decoder(self) -> Decoder[Any]:
        """Return the decoder of what a client sends."""

    @abstractmethod
    def scan(
        self, session: Session, data: memoryview, start: int, *, permits: bytearray | None
    ) -> int:
        """Fill the broker's batch with publish frames from `start`; return where the run ends.

        The run ends at a topic that `permits` does not mark; None lets all topics pass.
        """

    def scan_decoded(self, session: Session, frame: memoryview) -> int:
        """Fill the broker's batch with one publish that was decoded and authorized before."""
        return self.scan(session, frame, 0, permits=None)

    @abstractmethod
    def published(self, session: Session, receipt: Receipt) -> None:
        """Acknowledge the broker's batch, which is taken, once it is safe.

        Where the protocol has no acknowledgments, only a failure is told.
        """

    @abstractmethod
    def refuse_run(self, session: Session, error: LogUnavailable) -> None:
        """Answer all rows of the broker's batch, of which none is taken."""

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
        turn_ends = self.broker.clock.monotonic() + TURN_SECONDS_MAX
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
                if self.broker.clock.monotonic() > turn_ends:
                    self._let_others_go_on()
        except WireError as error:
            self.broker.counters.frames_rejected[self.protocol] += 1
            self.framing_lost(error)
            self.close()
        finally:
            self.broker.batch.clear()
        if self.session is not None:
            self.broker.counters.received(self.session, position)
        if self._closed:
            return size
        if self.link.congested:
            self._wait_for_reader()
        return position

    @property
    def publishes(self) -> bool:
        """Whether publish frames may come now."""
        return True

    def _let_others_go_on(self) -> None:
        """Take what else is there a little later: questions can cost more than they weigh."""
        if not self._suspended and not self._closed:
            self.suspend()
            self.broker.timers.after(0.0, self.proceed)

    def _take_run(self, session: Session, data: memoryview, start: int) -> int:
        batch = self.broker.batch
        batch.rows_max = self.allowance.left(self.broker.clock.monotonic(), most=BATCH_ROWS_MAX)
        end = self.scan(session, data, start, permits=self.broker.permits(session))
        if len(batch):
            self._publish(session)
        return end

    def _publish(self, session: Session) -> None:
        """Have the broker take its batch, which holds what this client sent, and answer it."""
        batch = self.broker.batch
        self.allowance.take(len(batch))
        try:
            receipt = self.broker.publish_batch(session, batch)
        except LogUnavailable as error:
            self.broker.counters.messages_refused[self.protocol] += len(batch)
            self.refuse_run(session, error)
        else:
            self.published(session, receipt)

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
        if not self.allowance.left(self.broker.clock.monotonic(), most=1):
            return self._too_fast(packet, start, end)
        try:
            self.admit(session, topic)
        except (PeerError, CallerError) as error:
            self._refuse_publish(packet, error)
            return end
        if self.broker.hooks.watch(self.protocol, topic):
            self._ask_about_publish(session, packet, topic, bytes(data[start:end]))
            return end
        # What was in the way is gone: the kernel takes the frame now, and what follows it.
        run_end = self._take_run(session, data, start)
        if run_end == start:
            self._take_one(session, bytes(data[start:end]))
            return end
        return run_end

    def _too_fast(self, packet: Any, start: int, end: int) -> int:  # noqa: ANN401
        """Refuse a publish above the rate limit, or come back to it when there is room again."""
        if self.refuses_above_rate:
            self.broker.counters.frames_rejected[self.protocol] += 1
            error = TooManyMessages(self.options.messages_per_second_max or 0)
            self._refuse_publish(packet, error)
            return end
        self.suspend()
        self.broker.timers.after(self.allowance.wait_seconds(), self.proceed)
        return start

    def _refuse_publish(self, packet: Any, error: PeerError | CallerError) -> None:  # noqa: ANN401
        """Count a message that is not taken, and answer it."""
        self.broker.counters.messages_refused[self.protocol] += 1
        self.refuse_publish(packet, error)

    def admit(self, session: Session, topic: str) -> None:
        """Judge the topic of a publish that the scan stopped at; raise what refuses it."""
        self.broker.admit(session, topic)

    # --- Hooks ------------------------------------------------------------------------------------

    def ask(self, event: Event, then: Callable[[PeerError | None], None]) -> None:
        """Have middleware judge what the client is about to do; call `then` with the verdict.

        None lets it happen. Where middleware must be waited for, this returns before, and the
        client stays suspended until `then` has returned; if it leaves, `then` is not called.
        """
        inquiry = self.broker.hooks.ask(event)
        if inquiry.settled:
            then(inquiry.error)
            return
        self._inquiry = inquiry
        inquiry.then = lambda error: self._judged(then, error)
        self.suspend()

    def connect(self, name: str, then: Callable[[], None]) -> None:
        """Have middleware judge a client that is about to get a session; call `then` if it may.

        If it may not, `refuse_connection` is called.
        """
        if not self.broker.hooks.has(EventKind.CONNECT):
            then()
            return

        def verdict(error: PeerError | None) -> None:
            if error is None:
                then()
            else:
                self.broker.counters.connections_failed["refused by middleware"] += 1
                self.refuse_connection(error)

        self.ask(Event(EventKind.CONNECT, name, name, self.protocol), verdict)

    def limit_handshake(self, deadline: Timer) -> None:
        """Close the connection if it has no session when `deadline` is due."""
        deadline.callback = self.handshake_timed_out
        self._handshake_deadline = deadline

    def handshake_timed_out(self) -> None:
        """Close the connection unless it has a session."""
        if self.session is None:
            self.tell_too_late()
            refuse(self.broker, self.link, "no handshake in time")

    def tell_too_late(self) -> None:  # noqa: B027  (most protocols cannot)
        """Answer a client that did not finish its handshake in time, where the protocol can."""

    def note_unknown(self, reason: str) -> None:
        """Take note of a client whose credentials, or lack of them, do not let it in."""
        self.broker.counters.connections_failed["credentials refused"] += 1
        log.info(
            "client refused",
            connection=self.link.connection,
            peer=self.link.peer,
            protocol=self.protocol.label,
            reason=reason,
        )

    def refuse_connection(self, error: PeerError) -> None:  # noqa: ARG002
        """Answer a client that middleware does not let in, where the protocol can, and close."""
        self.close()

    def subscribe(
        self,
        session: Session,
        text: str,
        then: Callable[[PeerError | None], None],
        *,
        resume_at: int | None = None,
    ) -> None:
        """Give a session the topics of a pattern if middleware lets it; call `then` when done.

        `text` is the pattern and perhaps where in history it starts, which nobody judges; with
        `resume_at` it is the pattern alone, and that offset is where.
        `then` is called with None for a success, the session's old subscriptions included, or with
        InvalidPattern, NotAllowed, TooManySubscriptions, HookRefused, HookTimeout or a LogError.
        """

        def verdict(error: PeerError | None) -> None:
            if error is None:
                try:
                    if resume_at is None:
                        self.broker.subscribe(session, text)
                    else:
                        self.broker.resume(session, text, resume_at)
                except PeerError as refusal:
                    error = refusal
            then(error)

        pattern, _ = (text, None) if resume_at is not None else split_replay(text)
        hooks = self.broker.hooks
        if pattern in session.subscriptions or not hooks.has(EventKind.SUBSCRIBE):
            verdict(None)
            return
        try:
            compile_pattern(pattern)
            self.broker.judge_subscription(session, pattern)
        except PeerError as error:
            then(error)
            return
        self.ask(Event(EventKind.SUBSCRIBE, pattern, session.name, self.protocol, session), verdict)

    def message_event(self, session: Session, packet: Any, topic: str, value: bytes) -> Event:  # noqa: ANN401, ARG002
        """Return what hooks see of a publish; a protocol whose messages say more adds that."""
        return Event(EventKind.PUSH, topic, session.name, self.protocol, session, value=value)

    def ask_about_message(self, event: Event, packet: Any, then: Callable[[], None]) -> None:  # noqa: ANN401
        """Have middleware judge a message; call `then` if it passes, else `refuse_publish`.

        A protocol calls this for messages that it delivers past the kernel.
        """

        def verdict(error: PeerError | None) -> None:
            if error is None:
                then()
            else:
                self._refuse_publish(packet, error)

        self.broker.hooks.messages_judged += 1
        self.ask(event, verdict)

    def _ask_about_publish(
        self,
        session: Session,
        packet: Any,  # noqa: ANN401
        topic: str,
        frame: bytes,
    ) -> None:
        """Take a publish of the kernel's kind once middleware has let it pass."""
        self._scan_one(session, frame)
        event = self.message_event(session, packet, topic, self.broker.batch.value(0))
        self.ask_about_message(event, packet, lambda: self._take_one(session, frame))

    def _take_one(self, session: Session, frame: bytes) -> None:
        """Publish one frame that has been judged."""
        self._scan_one(session, frame)
        self._publish(session)

    def _scan_one(self, session: Session, frame: bytes) -> None:
        """Fill the broker's batch with one frame, whatever the permits say of its topic."""
        self.broker.batch.rows_max = 1
        end = self.scan_decoded(session, memoryview(frame))
        if end != len(frame) or len(self.broker.batch) != 1:
            raise AssertionError(f"a {self.protocol.label} publish that no kernel takes")

    def _judged(self, then: Callable[[PeerError | None], None], error: PeerError | None) -> None:
        self._inquiry = None
        self.go_on(lambda: then(error))

    def go_on(self, work: Callable[[], None]) -> None:
        """Do what the client was suspended for, and take its packets again.

        Another connection's packet, a thread or a timer brought it on: whatever breaks here is
        this connection's fault.
        """
        if self._closed:
            return
        try:
            work()
        except Exception:
            self.broker.counters.connections_failed["internal error"] += 1
            log.exception("connection failed", connection=self.link.connection, peer=self.link.peer)
            self._closed = True
            self.link.abort()
            return
        finally:
            self.broker.batch.clear()
        self.proceed()

    # --- Ends -------------------------------------------------------------------------------------

    @property
    def encoding(self) -> Encoding:
        """How deliveries to this client are written."""
        return Encoding(self.protocol, self.order)

    def suspend(self) -> None:
        """Take no more packets until `proceed`; the one at hand is being thought about."""
        if not self._suspended:
            self._suspended = True
            self.link.pause()

    def proceed(self) -> None:
        """Go on where `suspend` stopped, unless middleware is still to be waited for."""
        if self._suspended and self._inquiry is None:
            self._suspended = False
            self.link.resume()

    def close(self) -> None:
        """End the connection when all answers are sent, or when they took too long to come."""
        if not self._closed:
            self._closed = True
            if self.session is None:
                self.link.close()
            else:
                self._close_deadline = self.broker.timers.after(LINGER_SECONDS_MAX, self.link.close)
                self.session.finish()

    def ended(self) -> None:
        """See ports.Handler: answers that wait for the disk are still sent."""
        self.close()

    def drained(self) -> None:
        """See ports.Handler."""
        if self.session is not None:
            self.broker.drained(self.session)
        if self._unread:
            self._unread = False
            self.link.resume()

    def _wait_for_reader(self) -> None:
        """Read no more from a client that does not read: its answers would pile up."""
        if not self._unread:
            self._unread = True
            self.link.pause()

    def lost(self, reason: str) -> None:  # noqa: ARG002
        """See ports.Handler."""
        self._closed = True
        for deadline in (self._handshake_deadline, self._close_deadline):
            if deadline is not None:
                deadline.cancel()
        self._handshake_deadline = self._close_deadline = None
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None
        if self.session is not None:
            self.broker.close(self.session)
            self.session = None
