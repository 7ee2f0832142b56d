"""The base class of client sessions.

A session encodes and decodes the traffic of one connection. Commands append bytes to send and
return *tickets*: numbers that identify the answer when it arrives as an event. A session uses no
socket, clock or event loop.
"""

import dataclasses
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock import positions
from penstock.client.errors import BadOption, Unsupported
from penstock.client.events import Anchored, Event, Ready
from penstock.client.options import Credentials
from penstock.client.topics import Topic
from penstock.client.values import Delivery, HookCall, Request
from penstock.errors import FieldOutOfRange
from penstock.middleware import Condition, HookStrategy, HookType
from penstock.positions import Place
from penstock.protocols import Protocol
from penstock.topic_names import check_topic_name
from penstock.wire.decoder import Buffer, Decoder, Rejected

__all__ = ["NO_EXTRAS", "Extras", "Hook", "Session", "check_sizes", "session_name"]

TICKET_MAX: Final = 0x7FFF_FFFF
"""Some protocols send tickets as message ids, whose top bit is reserved for the broker."""


@dataclasses.dataclass(frozen=True, slots=True)
class Extras:
    """Parts of a publish that only some protocols carry: headers; status and routing; a key.

    `routing` maps the client ids of the receivers to paths. `packed` values are already
    MessagePack. `dedupe` is the key of the message, for deduplication.
    """

    headers: tuple[tuple[str, bytes], ...] = ()
    status: int | None = None
    routing: Mapping[int, str] | None = None
    packed: bool = False
    dedupe: str | None = None


NO_EXTRAS: Final = Extras()


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """A hook of a middleware: the events it is called for."""

    name: str
    hook_type: HookType
    priority: int = 0
    timeout_ms: int = 1000
    strategy: HookStrategy = HookStrategy.WAIT_OR_REFUSE
    conditions: tuple[Condition, ...] = ()


class Session(ABC):
    """The client side of one connection of one protocol.

    Commands that a protocol does not have raise Unsupported. A value that does not fit its field
    raises FieldOutOfRange. A command that raises sends nothing and leaves the session as it was:
    it encodes everything before it changes anything.
    """

    protocol: ClassVar[Protocol]

    decoder: Decoder[Any]

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._next_ticket = 1
        self._places: Iterator[Place] = iter(())  # of the next deliveries

    # --- Bytes ------------------------------------------------------------------------------------

    def feed(self, data: Buffer) -> None:
        """Add received bytes, split at any position."""
        self.decoder.feed(data)

    def events(self) -> Iterator[Event]:
        """Yield the events in the received bytes. A later call continues where iteration stopped.

        Raise WireError if the broker breaks the protocol; the connection must then be closed.
        """
        for packet in self.decoder:
            if isinstance(packet, Rejected):
                raise packet.error
            event = self._received(packet)
            if event is not None:
                yield event

    def data_to_send(self) -> bytes:
        """Return the bytes to send now, and clear them."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    @abstractmethod
    def _received(self, packet: Any) -> Event | None:  # noqa: ANN401
        """Return the event of a packet, None if it has none."""

    # --- Commands of all protocols ----------------------------------------------------------------

    @abstractmethod
    def start(self) -> Ready | None:
        """Begin the handshake. Return Ready if the protocol has none; else Ready is an event."""

    @abstractmethod
    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """Publish values to one topic; return the tickets of the acknowledgments, in order."""

    @abstractmethod
    def subscribe(self, topic: str) -> int:
        """Subscribe to a topic; return the ticket of the answer."""

    @abstractmethod
    def ping(self) -> int:
        """Send a request that has no effect but its answer; return the ticket of the answer."""

    def canonical(self, topic: Topic) -> str:
        """Return the name that a topic has in deliveries."""
        if not isinstance(topic, str):
            raise BadOption("topic", f"is {topic!r}, not a name")
        return topic

    def goodbye(self) -> None:  # noqa: B027
        """Send the protocol's closing message, if it has one."""

    def assume_number(self, number: int) -> None:  # noqa: B027
        """Encode as the client with this number, as if the broker had assigned it."""

    def forget(self, ticket: int) -> None:  # noqa: B027
        """Drop the answer to `ticket`: the caller has stopped waiting."""

    # --- Commands of some protocols ---------------------------------------------------------------

    def unsubscribe(self, topic: str) -> int:  # noqa: ARG002
        """Unsubscribe from a topic; return the ticket of the answer."""
        raise self.unsupported("unsubscribe")

    def create_topic(self, topic: str) -> int:  # noqa: ARG002
        """Create a topic; return the ticket of the answer."""
        raise self.unsupported("create_topic")

    def request(self, target: int, path: str, payload: bytes) -> int:  # noqa: ARG002
        """Send a request to a client; return the answer's ticket. `payload` is MessagePack."""
        raise self.unsupported("request")

    def reply(self, request: Request, status: int, payload: bytes) -> None:  # noqa: ARG002
        """Answer a request."""
        raise self.unsupported("serve")

    def notify(self, targets: Mapping[int, str], payload: bytes, status: int | None) -> None:  # noqa: ARG002
        """Send a notification; `targets` maps client ids to paths."""
        raise self.unsupported("notify")

    def broadcast(self, payload: bytes, status: int | None) -> None:  # noqa: ARG002
        """Send a message to all clients."""
        raise self.unsupported("broadcast")

    def register(self, hook: Hook) -> int:  # noqa: ARG002
        """Register a hook; return the ticket of the answer."""
        raise self.unsupported("middleware")

    def unregister(self, name: str) -> int:  # noqa: ARG002
        """Unregister a hook; return the ticket of the answer."""
        raise self.unsupported("middleware")

    def answer_hook(self, call: HookCall, refusal: str | None) -> None:  # noqa: ARG002
        """Allow a hooked event, or refuse it with a text."""
        raise self.unsupported("middleware")

    def answer_delivery(self, delivery: Delivery, failure: str | None) -> bool:  # noqa: ARG002
        """Acknowledge a message of a group, or refuse it with a text.

        Return False if it came by another connection. Without a `failure`, protocols that have no
        such answer do nothing: receiving a message acknowledges it.
        """
        if failure is not None:
            raise self.unsupported("nack")
        return True

    def restoring(self, subscriptions: Iterable[str]) -> None:  # noqa: B027
        """Take note, before `start`, of subscriptions that follow: of a client that reconnects."""

    # --- For subclasses ---------------------------------------------------------------------------

    def unsupported(self, operation: str) -> Unsupported:
        """Return the error for an operation that the protocol lacks."""
        return Unsupported(self.protocol.label, operation)

    def _positions(self, payload: bytes) -> Event | None:
        """Take the positions of the next deliveries, or return where a subscription starts."""
        found = positions.decode(payload)
        if isinstance(found, positions.Anchor):
            return Anchored(found)
        self._places = iter(found)
        return None

    def _tickets(self, count: int) -> range:
        first = self._next_ticket
        if first + count > TICKET_MAX:
            first = 1
        self._next_ticket = first + count
        return range(first, first + count)

    def _ticket(self) -> int:
        return self._tickets(1)[0]

    def _check_publish(self, topic: str, extras: Extras, *allowed: str) -> None:
        check_topic_name(topic)
        for name in ("headers", "status", "routing", "packed", "dedupe"):
            if name not in allowed and getattr(extras, name) not in ((), None, False):
                raise self.unsupported(f"publish({'payload' if name == 'packed' else name}=…)")


def session_name(credentials: Credentials) -> str:
    """Return the name of a client, a random one if none was given."""
    return credentials.name or f"penstock-{secrets.token_hex(6)}"


def check_sizes(values: Iterable[bytes], size_max: int) -> None:
    """Raise FieldOutOfRange if a value is longer than the protocol allows."""
    longest = max(map(len, values), default=0)
    if longest > size_max:
        raise FieldOutOfRange("value length", longest, size_max)
