"""Detection of the protocol of a capture, and of the client among its two sides."""

from typing import Final, NamedTuple

from penstock.decode.reading import reading_of
from penstock.errors import UnrecognisedProtocol, WireError
from penstock.model import ByteOrder
from penstock.protocols import PROTOCOLS, Protocol
from penstock.wire.detect import conclude

__all__ = ["Identified", "identify"]

_HINTS: Final = (
    (b"\x16\x03", "this is TLS, whose content cannot be read here"),
    (b"GET ", "this is HTTP, perhaps the handshake of a WebSocket; capture its content instead"),
)


class Identified(NamedTuple):
    """A protocol, its byte order, and whether the first of two sides is the client."""

    protocol: Protocol
    order: ByteOrder
    from_client: bool


def identify(
    first: bytes,
    second: bytes = b"",
    *,
    protocol: Protocol | None = None,
    order: ByteOrder | None = None,
    from_client: bool | None = None,
) -> Identified:
    """Return the protocol of a connection whose two sides start with `first` and `second`.

    What is given is taken as it is: `from_client` is about `first`. Raise UnrecognisedProtocol.
    """
    if protocol is not None:
        reading = reading_of(protocol)
        if from_client is None:
            from_client = reading.is_client(first) if first else not reading.is_client(second)
        of_client = first if from_client else second
        return Identified(protocol, order or reading.order(of_client, first + second), from_client)
    failure: WireError | None = None
    if any((first or second).startswith(mark) for mark, _ in _HINTS):
        raise _unrecognised(first or second, None)
    for data, is_client in ((first, True), (second, False)):
        if from_client is not None and is_client is not from_client:
            continue
        try:
            found = conclude(data) if data else None
        except UnrecognisedProtocol as error:
            failure = failure or error
            continue
        if found is not None:
            sent_by_client = is_client
            reading = reading_of(found.protocol)
            if not reading.is_client(data) and _guess(data) is not None:
                continue  # wrong for a client, and right for a server of another protocol
            if reading.sides_start_alike and from_client is None:
                sent_by_client = is_client is reading.is_client(data)
            return Identified(found.protocol, order or found.order, sent_by_client)
    for data, is_first in ((first, True), (second, False)):
        guess = _guess(data)
        if guess is not None:
            reading = reading_of(guess)
            sent_by_client = (
                is_first is reading.is_client(data) if from_client is None else from_client
            )
            return Identified(guess, order or reading.order(b"", data), sent_by_client)
    raise _unrecognised(first or second, failure)


def _unrecognised(data: bytes, failure: WireError | None) -> UnrecognisedProtocol:
    for mark, hint in _HINTS:
        if data.startswith(mark):
            return UnrecognisedProtocol(data[: len(mark)], hint)
    if isinstance(failure, UnrecognisedProtocol):
        return failure
    return UnrecognisedProtocol(data[:16], "these bytes settle no protocol")


def _guess(data: bytes) -> Protocol | None:
    """Return the protocol of bytes that no client starts with."""
    readable = (protocol for protocol in PROTOCOLS if protocol.decode)
    return next((each for each in readable if reading_of(each).is_server(data)), None)
