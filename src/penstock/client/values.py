"""Values that callers publish and receive: payloads, headers, deliveries, requests, hook calls."""

import dataclasses
import itertools
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.client.errors import BadOption, InvalidValue, Refused
from penstock.limits import MIB
from penstock.model import message_id
from penstock.positions import Place
from penstock.protocols.fleximq import (
    FLEXIMQ,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
)
from penstock.service_messages import BROKER, ServiceReply, ServiceRequest
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import InvalidMessage

__all__ = [
    "Delivery",
    "Headers",
    "HookCall",
    "InvalidMessage",
    "Notification",
    "Reply",
    "Request",
    "checked_values",
    "header_pairs",
    "packed",
    "raw_value",
    "service_reply",
    "service_request",
    "unpacked",
    "write_batches",
]

WRITE_VALUES_MAX: Final = 1024
WRITE_BYTES_MAX: Final = 1 * MIB
"""Limits of one write; a single larger value is a write of its own."""

Headers: TypeAlias = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]
"""LamaMQ headers. Pairs may repeat a key. Text is sent as UTF-8."""

_CALL_HEADERS: Final = frozenset(
    {"penstock-hook", "penstock-event", "penstock-client", "penstock-protocol"}
)


_ADVICE: Final = {
    str: "encode the text: text.encode()",
    type(None): "an empty value is b''",
}


def checked_values(values: Iterable[Any], *, first: int = 0) -> list[bytes]:
    """Return values as bytes. A buffer is copied: it may change before it is sent.

    Raise InvalidValue, with the index of the value; that of the first one is `first`.
    """
    checked: list[bytes] = []
    for value in values:
        if type(value) is bytes:
            checked.append(value)
        elif isinstance(value, bytes | bytearray | memoryview):
            checked.append(bytes(value))
        else:
            advice = _ADVICE.get(type(value), "encode it, or use payload= for fleximq")
            raise InvalidValue(first + len(checked), type(value).__name__, advice)
    return checked


def header_pairs(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    """Return headers in the form that the codec takes; raise BadOption for other types."""
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[tuple[str, bytes]] = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise BadOption("headers", f"has {pair!r}, not a pair of key and value")
        key, value = pair
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(key, str) or not isinstance(value, bytes):
            raise BadOption("headers", f"has {pair!r}, not a key of text and a value of bytes")
        checked.append((key, value))
    return tuple(checked)


def write_batches(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Split values into batches of one write each; raise InvalidValue.

    The values of a list or tuple are all checked before the first batch.
    """
    if isinstance(values, Sequence):
        values = checked_values(values)
    source = iter(values)
    count = 0
    while batch := checked_values(itertools.islice(source, WRITE_VALUES_MAX), first=count):
        count += len(batch)
        while batch:
            size = len(batch)
            while size > 1 and sum(map(len, batch[:size])) > WRITE_BYTES_MAX:
                size //= 2
            yield batch[:size]
            batch = batch[size:]


def packed(payload: object) -> bytes:
    """Encode a fleximq payload as MessagePack; None becomes the empty payload.

    Raise Unencodable for a value that MessagePack has no format for.
    """
    return b"" if payload is None else messagepack.encode(payload)


def raw_value(payload: object) -> bytes:
    """Return the bytes of a payload in protocols without MessagePack; raise Unencodable."""
    return fleximq.raw_value(packed(payload))


def unpacked(payload: bytes) -> object:
    """Decode a fleximq payload; the empty payload becomes None.

    Raise messagepack.Malformed for a value that Python cannot represent.
    """
    if not payload:
        return None
    return messagepack.decode(
        payload,
        depth_max=FLEXIMQ_PAYLOAD_DEPTH_CEILING,
        elements_max=sys.maxsize,
        string_bytes_max=len(payload),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """One message of a subscription.

    `topic` is None if the protocol does not send it (Rheos v1 with several subscriptions). `value`
    is the payload's bytes, the same in every protocol. `sender` is 16 bytes in Rheos, else the
    client id of the sender. `timestamp_us` is in microseconds since the epoch: set by the broker in
    herald, by the publisher in whole seconds in LamaMQ, else None. `headers` is for LamaMQ only,
    `status` for fleximq only. `packet` is the decoded packet.
    """

    topic: str | None
    value: bytes
    packet: Any = dataclasses.field(repr=False)
    sender: bytes | int | None = None
    timestamp_us: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    status: int | None = None
    origin: Any = dataclasses.field(default=None, repr=False, compare=False)
    """Identifies the message in its acknowledgment. Internal to the client library."""
    place: Place | None = None
    """Where the message is in the log; None if the broker did not say."""

    @property
    def offset(self) -> int | None:
        """Offset in its partition of the log."""
        return None if self.place is None else self.place.offset

    @property
    def partition(self) -> int | None:
        """Partition of the log."""
        return None if self.place is None else self.place.partition

    @property
    def broker_time_us(self) -> int | None:
        """When the broker received the message: microseconds since the epoch."""
        return None if self.place is None else self.place.time_us

    @property
    def message_id(self) -> uuid.UUID | None:
        """Id of the message: the same in acknowledgments, in the log and in Spark."""
        place = self.place
        if place is None:
            return None
        number = message_id(place.log_id, partition=place.partition, offset=place.offset)
        return uuid.UUID(bytes=number)

    @property
    def payload(self) -> Any:  # noqa: ANN401
        """Decoded payload of a fleximq message; `value` in other protocols."""
        if isinstance(self.packet, fleximq.Message):
            return unpacked(self.packet.payload)
        return self.value


class _Message:
    """Common properties of values that wrap a fleximq message."""

    __slots__ = ()

    packet: fleximq.Message

    @property
    def sender(self) -> int:
        """Client id of the sender."""
        return self.packet.client_id

    @property
    def status(self) -> int | None:
        """Status of the message, if any."""
        return self.packet.header.status

    @property
    def value(self) -> bytes:
        """Bytes of the payload: the content of a bin or str, else its MessagePack."""
        return fleximq.raw_value(self.packet.payload)

    @property
    def payload(self) -> Any:  # noqa: ANN401
        """Decoded payload."""
        return unpacked(self.packet.payload)


@dataclasses.dataclass(frozen=True, slots=True)
class Reply(_Message):
    """The answer to a fleximq request."""

    packet: fleximq.Message


@dataclasses.dataclass(frozen=True, slots=True)
class Request(_Message):
    """A fleximq request, passed to a handler of `serve`."""

    packet: fleximq.Message
    path: str


def service_request(request: ServiceRequest, path: str) -> Request:
    """Return a request that came by a topic in the form of one to a path."""
    header = fleximq.Header(reqrep=fleximq.ReqRep(fleximq.ReqRepType.REQUEST, request.identifier))
    payload = fleximq.wrap_value(request.value)
    return Request(fleximq.Message(fleximq.MessageType.REQ, BROKER, header, payload), path)


def service_reply(reply: ServiceReply) -> Reply:
    """Return an answer that came by a topic; raise Refused if it is no success."""
    payload = fleximq.wrap_value(reply.value)
    if not reply.is_success:
        text = reply.value.decode("utf-8", "replace") or "no reason given"
        raise Refused(FLEXIMQ, reply.status, text, payload)
    reqrep = fleximq.ReqRep(fleximq.ReqRepType.CORRELATION, reply.identifier)
    header = fleximq.Header(reqrep=reqrep, status=reply.status)
    return Reply(fleximq.Message(fleximq.MessageType.REP, BROKER, header, payload))


@dataclasses.dataclass(frozen=True, slots=True)
class Notification(_Message):
    """A fleximq NOTIF, or a BCAST, which has no path."""

    packet: fleximq.Message
    path: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class HookCall:
    """An event that a middleware must accept or refuse; `packet` is the codec's Forward."""

    hook: str
    packet: Any = dataclasses.field(repr=False)

    @property
    def topic(self) -> str:
        """Topic of the message; for other events the pattern, hook or client."""
        topic: str = self.packet.message.routing_key
        return topic

    @property
    def value(self) -> bytes:
        """Payload of the message."""
        value: bytes = self.packet.message.payload
        return value

    @property
    def event(self) -> str:
        """Kind of event: push, connect, disconnect, subscribe and so on."""
        return self._header("penstock-event")

    @property
    def client(self) -> str:
        """Name of the client that causes the event."""
        return self._header("penstock-client")

    @property
    def protocol(self) -> str:
        """Protocol of that client."""
        return self._header("penstock-protocol")

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Headers of the message, without those that Penstock adds to a call."""
        return tuple(
            header for header in self.packet.message.headers if header[0] not in _CALL_HEADERS
        )

    def _header(self, name: str) -> str:
        for header, value in self.packet.message.headers:
            if header == name:
                return str(value, "utf-8", "replace")
        return ""
