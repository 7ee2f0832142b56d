"""What a client hands to its caller: deliveries, replies, requests, notifications, hook calls."""

import dataclasses
from typing import Any, Final

from penstock.protocols.fleximq import (
    FLEXIMQ_PAYLOAD_DEPTH_MAX,
    FLEXIMQ_PAYLOAD_ELEMENTS_MAX,
)
from penstock.wire import fleximq, messagepack

__all__ = ["Delivery", "HookCall", "Notification", "Reply", "Request", "packed", "unpacked"]

_ABOUT_A_CALL: Final = frozenset(
    {"penstock-hook", "penstock-event", "penstock-client", "penstock-protocol"}
)


def packed(payload: object) -> bytes:
    """Return a fleximq payload: `payload` as MessagePack; None is the empty payload.

    Raise Unencodable for what MessagePack has no format for.
    """
    return b"" if payload is None else messagepack.encode(payload)


def unpacked(payload: bytes) -> object:
    """Return the value of a fleximq payload; of the empty one None.

    Raise messagepack.Malformed for what Python has no value for.
    """
    if not payload:
        return None
    return messagepack.decode(
        payload,
        depth_max=FLEXIMQ_PAYLOAD_DEPTH_MAX,
        elements_max=FLEXIMQ_PAYLOAD_ELEMENTS_MAX,
        string_bytes_max=len(payload),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """One message of a subscription.

    `topic` is None where the protocol does not say it (Rheos v1 with several subscriptions).
    `value` is the payload's bytes, the same in every protocol. `sender` is 16 bytes in Rheos, a
    client id in fleximq, None elsewhere. `timestamp_us` is in microseconds since the epoch: the
    broker's in herald, the emitter's (of whole seconds) in LamaMQ, None elsewhere. `headers` are
    LamaMQ's, `status` is fleximq's. `packet` is the packet as the codec gave it.
    """

    topic: str | None
    value: bytes
    packet: Any = dataclasses.field(repr=False)
    sender: bytes | int | None = None
    timestamp_us: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    status: int | None = None

    @property
    def payload(self) -> Any:  # noqa: ANN401
        """What a fleximq message carries, decoded when asked for; elsewhere `value`."""
        if isinstance(self.packet, fleximq.Message):
            return unpacked(self.packet.payload)
        return self.value


class _Message:
    """What the values around one fleximq message have in common."""

    __slots__ = ()

    packet: fleximq.Message

    @property
    def sender(self) -> int:
        """The client id of who sent it."""
        return self.packet.client_id

    @property
    def status(self) -> int | None:
        """The status it carries, if any."""
        return self.packet.header.status

    @property
    def value(self) -> bytes:
        """The payload's bytes: of a bin or str its content, of anything else its MessagePack."""
        return fleximq.raw_value(self.packet.payload)

    @property
    def payload(self) -> Any:  # noqa: ANN401
        """The payload, decoded when asked for."""
        return unpacked(self.packet.payload)


@dataclasses.dataclass(frozen=True, slots=True)
class Reply(_Message):
    """The answer to a fleximq request."""

    packet: fleximq.Message


@dataclasses.dataclass(frozen=True, slots=True)
class Request(_Message):
    """A fleximq request, as a handler of `serve` gets it."""

    packet: fleximq.Message
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Notification(_Message):
    """A fleximq NOTIF, or a BCAST: that one has no path."""

    packet: fleximq.Message
    path: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class HookCall:
    """An event that a middleware is asked about; `packet` is the Forward as the codec gave it."""

    hook: str
    packet: Any = dataclasses.field(repr=False)

    @property
    def topic(self) -> str:
        """The message's topic; for other events the pattern, hook or client they are about."""
        topic: str = self.packet.message.routing_key
        return topic

    @property
    def value(self) -> bytes:
        """The message's payload."""
        value: bytes = self.packet.message.payload
        return value

    @property
    def event(self) -> str:
        """What happens: push, connect, disconnect, subscribe and so on."""
        return self._about("penstock-event")

    @property
    def client(self) -> str:
        """The name of the client that does it."""
        return self._about("penstock-client")

    @property
    def protocol(self) -> str:
        """The protocol which that client speaks."""
        return self._about("penstock-protocol")

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers of the message, without those that say what the call is about."""
        return tuple(
            header for header in self.packet.message.headers if header[0] not in _ABOUT_A_CALL
        )

    def _about(self, name: str) -> str:
        for header, value in self.packet.message.headers:
            if header == name:
                return str(value, "utf-8", "replace")
        return ""
