"""LamaMQ clients with hooks: calls to them and their answers.

A hook call is a Forward. Its first four headers describe the event, the message's headers follow:

    penstock-hook       the hook's name
    penstock-event      connect, disconnect, push, subscribe, unsubscribe, register or unregister
    penstock-client     the name of the client that causes the event
    penstock-protocol   the protocol of that client

The routing key is the message's topic, the subscription's pattern, the hook's name or the client's.
"""

from collections import deque
from typing import Final

from penstock.core.broker import Broker
from penstock.core.hooks import Event, EventKind, Hook
from penstock.core.sessions import Session
from penstock.errors import FieldOutOfRange
from penstock.limits import HOOK_CALLS_LATE_MAX
from penstock.model import ByteOrder
from penstock.wire import lamamq
from penstock.wire.lamamq import BROKER_ID_BIT, HookType, PayloadType

__all__ = ["LamaMiddleware", "hook_of"]

KINDS: Final = {
    HookType.CONNECT: EventKind.CONNECT,
    HookType.DISCONNECT: EventKind.DISCONNECT,
    HookType.MESSAGE_PUSHED: EventKind.PUSH,
    HookType.SUBSCRIBED: EventKind.SUBSCRIBE,
    HookType.UNSUBSCRIBED: EventKind.UNSUBSCRIBE,
    HookType.REGISTERED: EventKind.REGISTER,
    HookType.UNREGISTERED: EventKind.UNREGISTER,
}


class LamaMiddleware:
    """One connection as `core.hooks.Middleware`.

    Only its id tells an answer from a request. So the ids of calls that timed out stay known, to
    read and drop late answers; beyond `calls_late_max` the oldest are forgotten.
    """

    def __init__(
        self,
        broker: Broker,
        session: Session,
        order: ByteOrder,
        decoder: lamamq.BrokerDecoder,
        *,
        calls_late_max: int = HOOK_CALLS_LATE_MAX,
    ) -> None:
        self.session: Session = session
        self._broker = broker
        self._order: ByteOrder = order
        self._decoder = decoder
        self._calls_late_max = calls_late_max
        self._called: set[int] = set()
        self._late: deque[int] = deque()

    def call(self, identifier: int, hook: str, event: Event) -> bool:
        """See core.hooks.Middleware.

        A call fails if the middleware does not read, or if the message leaves no room for the
        call's own headers.
        """
        link = self.session.link
        if link.buffered > self._broker.settings.out_buffer_bytes_max or link.account.overdrawn:
            self.session.dropped += 1
            self._broker.counters.messages_dropped[self.session.encoding.protocol] += 1
            return False
        message_id = identifier | BROKER_ID_BIT
        forward = lamamq.Forward(message_id, self._message(hook, event))
        try:
            data = lamamq.encode(forward, order=self._order)
        except FieldOutOfRange:
            return False
        self._called.add(message_id)
        self._decoder.awaited.add(message_id)
        link.write(data)
        return True

    def given_up(self, identifier: int) -> None:
        """See core.hooks.Middleware."""
        self._late.append(identifier | BROKER_ID_BIT)
        if len(self._late) > self._calls_late_max:
            forgotten = self._late.popleft()
            self._called.discard(forgotten)
            self._decoder.awaited.discard(forgotten)

    def answered(self, message_id: int, refusal: str | None) -> bool:
        """Process the answer to a call; return False if `message_id` belongs to no call."""
        if message_id not in self._called:
            return False
        self._called.discard(message_id)
        self._broker.hooks.calls.answered(message_id & ~BROKER_ID_BIT, refusal)
        return True

    def _message(self, hook: str, event: Event) -> lamamq.Message:
        payload_type = PayloadType.STRING if event.value_is_text else PayloadType.BUFFER
        if not event.value and not event.value_is_text:
            payload_type = PayloadType.EMPTY
        created_at = event.created_at
        if created_at is None:
            created_at = self._broker.clock.now_us() // 1_000_000
        return lamamq.Message(
            created_at,
            event.subject,
            (
                ("penstock-hook", hook.encode()),
                ("penstock-event", event.kind.encode()),
                ("penstock-client", event.client.encode()),
                ("penstock-protocol", event.protocol.label.encode()),
                *event.headers,
            ),
            payload_type,
            event.value,
        )


def hook_of(packet: lamamq.Register, middleware: LamaMiddleware) -> Hook:
    """Return the hook that a Register packet describes."""
    topics = []
    headers: list[tuple[str, bytes | None]] = []
    for condition in packet.conditions:
        match condition:
            case lamamq.TopicIs(topic):
                topics.append(topic)
            case lamamq.HeaderIs(header, value):
                headers.append((header, value))
            case lamamq.HasHeader(header):
                headers.append((header, None))
    return Hook(
        packet.hook_name,
        middleware,
        kind=KINDS[packet.hook_type],
        strategy=packet.strategy,
        priority=packet.priority,
        timeout_ms=packet.timeout_ms,
        topics=frozenset(topics),
        headers=tuple(headers),
    )
