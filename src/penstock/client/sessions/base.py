"""What every session does alike.

A session speaks for one connection. Commands append to what is to be sent and return *tickets*:
numbers under which the answer comes back as an event. It knows no socket, clock or event loop.
"""

import dataclasses
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock.client.errors import BadOption, Unsupported
from penstock.client.events import Event, Ready
from penstock.client.options import Credentials
from penstock.client.topics import Topic
from penstock.client.values import HookCall, Request
from penstock.errors import FieldOutOfRange, InvalidTopicName
from penstock.middleware import Condition, HookStrategy, HookType
from penstock.model import is_publishable
from penstock.protocols import Protocol
from penstock.wire.decoder import Buffer, Decoder, Rejected

__all__ = ["NO_EXTRAS", "Extras", "Hook", "Session", "check_sizes", "session_name"]

TICKET_MAX: Final = 0x7FFF_FFFF
"""Some protocols send tickets as message ids, whose top bit is the broker's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Extras:
    """Parts of a publish that only some protocols carry: headers; status and routing.

    `routing` has the path for each client id that shall receive it. `packed` values are MessagePack
    already.
    """

    headers: tuple[tuple[str, bytes], ...] = ()
    status: int | None = None
    routing: Mapping[int, str] | None = None
    packed: bool = False


NO_EXTRAS: Final = Extras()


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """The events that a middleware asks to see."""

    name: str
    hook_type: HookType
    priority: int = 0
    timeout_ms: int = 1000
    strategy: HookStrategy = HookStrategy.WAIT_OR_REFUSE
    conditions: tuple[Condition, ...] = ()


class Session(ABC):
    """One connection of one protocol, seen by its client.

    Commands that a protocol does not have raise Unsupported. What does not fit a field raises
    FieldOutOfRange, and then nothing is sent.
    """

    protocol: ClassVar[Protocol]
    pings: ClassVar[bool] = False
    """Whether `ping` is there to find out that a connection is dead."""

    decoder: Decoder[Any]

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._next_ticket = 1

    # --- Bytes ------------------------------------------------------------------------------------

    def feed(self, data: Buffer) -> None:
        """Take received bytes, however they were cut."""
        self.decoder.feed(data)

    def events(self) -> Iterator[Event]:
        """Give what the bytes mean; who stops early gets the rest the next time.

        Raise WireError where the broker breaks the protocol: the connection is of no use then.
        """
        for packet in self.decoder:
            if isinstance(packet, Rejected):
                raise packet.error
            event = self._received(packet)
            if event is not None:
                yield event

    def data_to_send(self) -> bytes:
        """Return what is to be sent now, and forget it."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    @abstractmethod
    def _received(self, packet: Any) -> Event | None:  # noqa: ANN401
        """Return what a packet means, None if nobody needs to know."""

    # --- Commands that all have -------------------------------------------------------------------

    @abstractmethod
    def start(self) -> Ready | None:
        """Begin the handshake; return Ready if there is none, else it comes as an event."""

    @abstractmethod
    def publish(self, topic: str, values: Sequence[bytes], extras: Extras = NO_EXTRAS) -> range:
        """Send values to one topic; return the tickets of what is acknowledged, in their order."""

    @abstractmethod
    def subscribe(self, topic: str) -> int:
        """Ask for a topic's messages; return the ticket of the answer."""

    def canonical(self, topic: Topic) -> str:
        """Return the name by which deliveries call a topic."""
        if not isinstance(topic, str):
            raise BadOption("topic", f"is {topic!r}, not a name")
        return topic

    def goodbye(self) -> None:  # noqa: B027
        """Say that the connection ends, where the protocol has a word for it."""

    def forget(self, ticket: int) -> None:  # noqa: B027
        """Nobody waits for the answer to `ticket` any more."""

    # --- Commands that some have ------------------------------------------------------------------

    def unsubscribe(self, topic: str) -> int:  # noqa: ARG002
        """Ask for a topic's messages no more; return the ticket of the answer."""
        raise self.unsupported("unsubscribe")

    def create_topic(self, topic: str) -> int:  # noqa: ARG002
        """Make a topic; return the ticket of the answer."""
        raise self.unsupported("create_topic")

    def ping(self) -> int:
        """Ask for a sign of life; return the ticket of the answer."""
        raise self.unsupported("ping")

    def request(self, target: int, path: str, payload: bytes) -> int:  # noqa: ARG002
        """Ask another client; return the ticket of the answer. `payload` is MessagePack."""
        raise self.unsupported("request")

    def reply(self, request: Request, status: int, payload: bytes) -> None:  # noqa: ARG002
        """Answer a request."""
        raise self.unsupported("serve")

    def notify(self, targets: Mapping[int, str], payload: bytes, status: int | None) -> None:  # noqa: ARG002
        """Tell clients something: the path for each client id."""
        raise self.unsupported("notify")

    def broadcast(self, payload: bytes, status: int | None) -> None:  # noqa: ARG002
        """Tell all clients something."""
        raise self.unsupported("broadcast")

    def register(self, hook: Hook) -> int:  # noqa: ARG002
        """Become a middleware; return the ticket of the answer."""
        raise self.unsupported("middleware")

    def unregister(self, name: str) -> int:  # noqa: ARG002
        """Be a middleware no more; return the ticket of the answer."""
        raise self.unsupported("middleware")

    def answer_hook(self, call: HookCall, refusal: str | None) -> None:  # noqa: ARG002
        """Let a hooked event pass, or refuse it with a text."""
        raise self.unsupported("middleware")

    # --- For sessions -----------------------------------------------------------------------------

    def unsupported(self, operation: str) -> Unsupported:
        """Return the error that names what this protocol has not."""
        return Unsupported(self.protocol.label, operation)

    def _tickets(self, count: int) -> range:
        first = self._next_ticket
        if first + count > TICKET_MAX:
            first = 1
        self._next_ticket = first + count
        return range(first, first + count)

    def _ticket(self) -> int:
        return self._tickets(1)[0]

    def _check_publish(self, topic: str, extras: Extras, *allowed: str) -> None:
        if not is_publishable(topic):
            raise InvalidTopicName(topic)
        for name in ("headers", "status", "routing", "packed"):
            if name not in allowed and getattr(extras, name) not in ((), None, False):
                raise self.unsupported(f"publish({'payload' if name == 'packed' else name}=…)")


def session_name(credentials: Credentials) -> str:
    """Return the name of a client; one that was not given is random."""
    return credentials.name or f"penstock-{secrets.token_hex(6)}"


def check_sizes(values: Iterable[bytes], size_max: int) -> None:
    """Raise FieldOutOfRange if one of the values is longer than the protocol can carry."""
    longest = max(map(len, values), default=0)
    if longest > size_max:
        raise FieldOutOfRange("value length", longest, size_max)
