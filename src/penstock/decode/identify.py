"""Which protocol a capture speaks, and who of the two is the client."""

import zlib
from typing import Final, NamedTuple

from penstock.errors import UnrecognisedProtocol, WireError
from penstock.limits import LAMAMQ_IDENTITY_KEY_BYTES_MAX
from penstock.model import ByteOrder, Protocol
from penstock.wire import lamamq
from penstock.wire.detect import conclude

__all__ = ["Identified", "identify", "keyless_name_end"]

_LITTLE: Final = frozenset({Protocol.RHEOS1, Protocol.RHEOS2})
_HERALD_SERVER: Final = frozenset({0x03, 0x13, 0xFF})  # HANDSHAKE_ACK, MESSAGE, ERROR
_FLEXIMQ_SERVER: Final = frozenset({2, 3})  # REP, NOTIF
_FLEXIMQ_TYPES: Final = 10
_VERSIONS: Final = 16  # a byte of a LamaMQ version offer is taken to be below
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
    """Return what a connection speaks whose two sides start with `first` and `second`.

    What is given is taken as it is: `from_client` is about `first`. Raise UnrecognisedProtocol.
    """
    if protocol is not None:
        if from_client is None:
            from_client = _is_client(protocol, first) if first else not _is_client(protocol, second)
        of_client = first if from_client else second
        return Identified(
            protocol, order or _order(protocol, of_client, first + second), from_client
        )
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
            told = is_client
            if found.protocol is Protocol.HERALD and from_client is None:
                told = is_client is _is_client(Protocol.HERALD, data)
            return Identified(found.protocol, order or found.order, told)
    for data, is_first in ((first, True), (second, False)):
        guess = _guess(data)
        if guess is not None:
            told = is_first is _is_client(guess, data) if from_client is None else from_client
            return Identified(guess, order or _order(guess, b"", data), told)
    raise _unrecognised(first or second, failure)


def _unrecognised(data: bytes, failure: WireError | None) -> UnrecognisedProtocol:
    for mark, hint in _HINTS:
        if data.startswith(mark):
            return UnrecognisedProtocol(data[: len(mark)], hint)
    if isinstance(failure, UnrecognisedProtocol):
        return failure
    return UnrecognisedProtocol(data[:16], "these bytes settle no protocol")


def _is_client(protocol: Protocol, data: bytes) -> bool:
    """Tell whether a client sends what starts so."""
    match protocol:
        case Protocol.RHEOS1 | Protocol.RHEOS2:
            return data[:1] not in {b"\xac", b"\x15"}
        case Protocol.HERALD:
            return len(data) < 3 or data[2] not in _HERALD_SERVER
        case Protocol.FLEXIMQ:
            return len(data) < 2 or data[1] not in _FLEXIMQ_SERVER
        case _:
            return data[:1] == b"\x00"


def _guess(data: bytes) -> Protocol | None:
    """Return the protocol of bytes that are not the start of what a client sends."""
    if data[:2] in {b"\xfe\xca", b"\xca\xfe"}:
        return Protocol.HERALD
    if data[:1] == b"\xfa":
        return _rheos_version(data)
    if data[:1] == b"\x15":
        return Protocol.RHEOS1
    if data[:1] == b"\xac":
        checked = len(data) >= 22 and zlib.crc32(data[:18]) == int.from_bytes(data[18:22], "little")
        return Protocol.RHEOS2 if checked else Protocol.RHEOS1
    if len(data) >= 22 and data[0] == 1 and data[1] < _FLEXIMQ_TYPES and not any(data[6:22]):
        return Protocol.FLEXIMQ
    offer = data[:4]
    if len(offer) == 4 and max(offer) < _VERSIONS and offer[0] and offer[:2] >= offer[2:]:
        return Protocol.LAMAMQ
    return None


def _rheos_version(data: bytes) -> Protocol | None:
    try:
        found = conclude(data)
    except WireError:
        return None
    return None if found is None else found.protocol


def _order(protocol: Protocol, of_client: bytes, data: bytes) -> ByteOrder:
    if protocol is Protocol.HERALD:
        return "big" if data[:1] == b"\xca" else "little"
    if protocol is Protocol.LAMAMQ:
        try:
            found = conclude(of_client) if of_client else None
        except WireError:
            found = None
        if found is not None and found.protocol is protocol:
            return found.order
    return "little" if protocol in _LITTLE else "big"


def keyless_name_end(data: bytes, order: ByteOrder) -> int:
    """Return where the name of a LamaMQ client ends, 0 if a key stands behind it.

    The wire does not say; a server knows because a client without a key waits for its offer. It is
    no key if what follows reads as the choice of a version that exists, and then either as a
    message or, read as the size of a key, as too much.
    """
    name_end = 5 + int.from_bytes(data[1:5], order)
    following = data[name_end : name_end + 4]
    if len(following) == 4 and lamamq.accepts(lamamq.VersionChoice(*following[:2])):
        size = int.from_bytes(following, order)
        if size > LAMAMQ_IDENTITY_KEY_BYTES_MAX:
            return name_end
    decoder = lamamq.BrokerDecoder(order=order)
    try:
        decoder.feed(data[:name_end])
        list(decoder)
        decoder.feed(data[name_end:])
        packets = iter(decoder)
        choice = next(packets, None)
        next(packets, None)
    except WireError:
        return 0
    if isinstance(choice, lamamq.VersionChoice) and not lamamq.accepts(choice):
        return 0
    return name_end
