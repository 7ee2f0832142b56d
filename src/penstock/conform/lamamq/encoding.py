"""LamaMQ messages from the specification: struct alone, independent of the codec.

`order` is the byte order of struct: network order unless it is LITTLE. The specification leaves the
bodies of subscriptions and of middleware open; those are Penstock's.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = [
    "BAD_REQUEST", "BIG", "BROKER_BIT", "BUFFER", "CHOICE", "CONNECT", "CREATED_AT", "DISCONNECT",
    "EMPTY", "LITTLE", "OFFER", "PUSHED", "REFUSED", "REGISTERED", "SERVER_EXCEPTION", "STRING",
    "SUBSCRIBED", "TELL", "TIMEOUT", "UNREGISTERED", "UNSUBSCRIBED", "WAIT_OR_GO_ON",
    "WAIT_OR_REFUSE", "Forwarded", "Headers", "answer", "authentication", "counted", "forward",
    "has_header", "header", "header_is", "message", "push", "register", "subscribe", "topic_is",
    "unregister", "unsubscribe",
]  # fmt: skip

BIG, LITTLE = ">", "<"
OFFER: Final = b"\x01\x00\x01\x00"
CHOICE: Final = b"\x01\x00"
BROKER_BIT: Final = 0x8000_0000
CREATED_AT: Final = 1_700_000_000

CONNECT, DISCONNECT, PUSHED, SUBSCRIBED, UNSUBSCRIBED, REGISTERED, UNREGISTERED = (
    0, 1, 16, 32, 33, 64, 65,
)  # fmt: skip
TELL, WAIT_OR_REFUSE, WAIT_OR_GO_ON = 0, 1, 2
SERVER_EXCEPTION, BAD_REQUEST, TIMEOUT, REFUSED = 1, 2, 3, 4
EMPTY, STRING, BUFFER = 0, 1, 2
CALL_HEADERS: Final = (
    b"penstock-hook", b"penstock-event", b"penstock-client", b"penstock-protocol",
)  # fmt: skip

Headers = Iterable[tuple[bytes, bytes]]


def counted(data: bytes, *, order: str = BIG) -> bytes:
    """Return a STRING or BUFFER: its size and its bytes."""
    return struct.pack(f"{order}I", len(data)) + data


def authentication(name: bytes = b"c", key: bytes | None = None, *, order: str = BIG) -> bytes:
    """Return the first message of the handshake."""
    return (
        b"\x00" + counted(name, order=order) + (b"" if key is None else counted(key, order=order))
    )


def header(identifier: int, kind: int, *, order: str = BIG) -> bytes:
    """Return a message header."""
    return struct.pack(f"{order}IB", identifier, kind)


def message(
    topic: bytes,
    payload: bytes = b"",
    *,
    kind: int = BUFFER,
    headers: Headers = (),
    created_at: int = CREATED_AT,
    order: str = BIG,
) -> bytes:
    """Return the part of a push or a forward behind its message header."""
    pairs = list(headers)
    return b"".join(
        [
            struct.pack(f"{order}I", created_at),
            counted(topic, order=order),
            struct.pack(f"{order}H", len(pairs)),
            *(counted(part, order=order) for pair in pairs for part in pair),
            bytes([kind]),
            counted(payload, order=order) if kind else b"",
        ]
    )


def push(
    identifier: int,
    topic: bytes,
    payload: bytes = b"",
    *,
    kind: int = BUFFER,
    headers: Headers = (),
    created_at: int = CREATED_AT,
    order: str = BIG,
) -> bytes:
    """Return a push."""
    return header(identifier, 0, order=order) + message(
        topic, payload, kind=kind, headers=headers, created_at=created_at, order=order
    )


def forward(
    identifier: int,
    topic: bytes,
    payload: bytes = b"",
    *,
    kind: int = BUFFER,
    headers: Headers = (),
    created_at: int = CREATED_AT,
    order: str = BIG,
) -> bytes:
    """Return a forward."""
    return header(identifier, 1, order=order) + message(
        topic, payload, kind=kind, headers=headers, created_at=created_at, order=order
    )


def subscribe(identifier: int, pattern: bytes, *, order: str = BIG) -> bytes:
    """Return a subscription."""
    return header(identifier, 32, order=order) + counted(pattern, order=order)


def unsubscribe(identifier: int, pattern: bytes, *, order: str = BIG) -> bytes:
    """Return the end of a subscription."""
    return header(identifier, 33, order=order) + counted(pattern, order=order)


def topic_is(topic: bytes, *, order: str = BIG) -> bytes:
    """Return the condition that a message has this topic."""
    return b"\x00" + counted(topic, order=order)


def header_is(name: bytes, value: bytes, *, order: str = BIG) -> bytes:
    """Return the condition that a message has this header."""
    return b"\x04" + counted(name, order=order) + counted(value, order=order)


def has_header(name: bytes, *, order: str = BIG) -> bytes:
    """Return the condition that a message has a header of this name."""
    return b"\x05" + counted(name, order=order)


def register(
    identifier: int,
    name: bytes,
    hook_type: int,
    *conditions: bytes,
    strategy: int = WAIT_OR_REFUSE,
    priority: int = 0,
    timeout_ms: int = 5000,
    order: str = BIG,
) -> bytes:
    """Return the registration of a hook."""
    data = header(identifier, 64, order=order) + counted(name, order=order)
    data += struct.pack(f"{order}IIBB", priority, timeout_ms, strategy, hook_type)
    if hook_type == PUSHED:
        data += struct.pack(f"{order}H", len(conditions)) + b"".join(conditions)
    return data


def unregister(identifier: int, name: bytes, *, order: str = BIG) -> bytes:
    """Return the end of a registration."""
    return header(identifier, 65, order=order) + counted(name, order=order)


def answer(identifier: int, error: int = 0, text: bytes = b"", *, order: str = BIG) -> bytes:
    """Return the answer to a message."""
    return header(identifier, error, order=order) + (counted(text, order=order) if error else b"")


class Forwarded(NamedTuple):
    """A forward that was received."""

    identifier: int
    created_at: int
    topic: bytes
    headers: list[tuple[bytes, bytes]]
    kind: int
    payload: bytes

    @property
    def about(self) -> tuple[bytes, bytes, bytes, bytes] | None:
        """Of a hook call: hook, event, client and protocol; None if this is no hook call."""
        names = tuple(name for name, _ in self.headers[:4])
        if names != CALL_HEADERS:
            return None
        hook, event, client, protocol = (value for _, value in self.headers[:4])
        return hook, event, client, protocol
