"""How what one side sends is read: by its codec, which judges, and a layout, which explains."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

from penstock.decode import fleximq as fleximq_layouts
from penstock.decode import herald as herald_layouts
from penstock.decode import lamamq as lamamq_layouts
from penstock.decode import rheos as rheos_layouts
from penstock.decode.layout import Layout
from penstock.errors import WireError
from penstock.limits import FLEXIMQ_MESSAGE_BYTES_CEILING
from penstock.model import ByteOrder, Protocol
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Buffer, Decoder
from penstock.wire.rheos import RheosError

__all__ = ["AwaitedIds", "Side", "error_name", "sides"]


class Side(ABC):
    """One direction of a connection.

    `mark` is what every frame has at `mark_at`, where frames can be found again by it; without one
    they cannot.
    """

    mark: bytes = b""
    mark_at: ClassVar[int] = 0

    def __init__(self, decoder: Decoder[Any], order: ByteOrder) -> None:
        self._decoder = decoder
        self.order: ByteOrder = order

    def decode_at(self, data: Buffer, start: int) -> tuple[Any, int] | None:
        """Return the packet at `start` and its end, as `wire.decoder.Decoder` does."""
        return self._decoder.decode_at(data, start)

    @abstractmethod
    def layout(self, data: bytes) -> tuple[str, Layout]:
        """Return name and layout of the frame that is next and starts with `data`."""

    def passed(self, packet: Any) -> None:  # noqa: ANN401
        """Learn what the frame was that was read."""
        del packet

    def blamed(self, error: WireError, data: bytes) -> tuple[str, ...]:
        """Return the names of fields that `error` may be about, where no field tells by itself."""
        del error, data
        return ()


def error_name(error: WireError, protocol: Protocol) -> str:
    """Return what the protocol calls an error; our own code where it has no name for it."""
    match error:
        case herald.HeraldError():
            return error.answer.name
        case fleximq.FleximqError():
            return f"{error.status.value} {error.status.name.replace('_', ' ').title()}"
        case lamamq.LamaError():
            return "Bad request"
        case RheosError():
            return error.code.removeprefix("rheos-").replace("-", "_").upper()
    if protocol in {Protocol.RHEOS1, Protocol.RHEOS2}:
        return "CORRUPTED_DATA"
    return error.code.replace("-", "_").upper()


# --- Rheos ----------------------------------------------------------------------------------------


class _Rheos1Client(Side):
    mark = b"\xfa"

    def layout(self, data: bytes) -> tuple[str, Layout]:
        return _operation(data, "request"), rheos_layouts.REQUEST_1


class _Rheos1Server(Side):
    def layout(self, data: bytes) -> tuple[str, Layout]:
        match data[:1]:
            case b"\xac":
                return "Acknowledgment Packet", rheos_layouts.ACKNOWLEDGMENT_1
            case b"\x15":
                return "Response Packet", rheos_layouts.RESPONSE_1
        return "no Rheos packet", rheos_layouts.NOTHING_1


class _Rheos2(Side):
    mark = b"\xfa"

    def __init__(self, decoder: Decoder[Any], order: ByteOrder, *, from_client: bool) -> None:
        super().__init__(decoder, order)
        self._from_client = from_client

    def layout(self, data: bytes) -> tuple[str, Layout]:
        match data[:1]:
            case b"\xfa":
                return _operation(data, "event"), rheos_layouts.EVENT_2
            case b"\xac" if not self._from_client:
                return "Acknowledgement Packet", rheos_layouts.ACKNOWLEDGMENT_2
        return "no Rheos packet", rheos_layouts.NOTHING_2


def _operation(data: bytes, what: str) -> str:
    operation = rheos_layouts.OPERATIONS.get(data[21], "unknown") if len(data) > 21 else "Rheos"
    return f"{operation} {what}"


# --- herald ---------------------------------------------------------------------------------------


class _Herald(Side):
    def __init__(self, order: ByteOrder) -> None:
        super().__init__(herald.Decoder(order=order), order)
        self.mark = herald_layouts.MAGIC.to_bytes(2, order)

    def layout(self, data: bytes) -> tuple[str, Layout]:
        name = herald_layouts.OPCODES.get(data[2], "unknown OpCode") if len(data) > 2 else "frame"
        return name, herald_layouts.FRAME


# --- fleximq --------------------------------------------------------------------------------------


class _Fleximq(Side):
    mark = bytes(16)  # the reserved bytes
    mark_at = 6

    def layout(self, data: bytes) -> tuple[str, Layout]:
        name = fleximq_layouts.TYPES.get(data[1], "unknown Type") if len(data) > 1 else "message"
        return name, fleximq_layouts.MESSAGE

    def blamed(self, error: WireError, data: bytes) -> tuple[str, ...]:
        return fleximq_layouts.blamed(error, data[1])


# --- LamaMQ ---------------------------------------------------------------------------------------


class AwaitedIds(set[int]):
    """Ids of which a rule says that they are awaited."""

    def __init__(self, holds: Callable[[int], bool]) -> None:
        super().__init__()
        self._holds = holds

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, int) and self._holds(identifier)


class _LamaClient(Side):
    """What a client sends. Its answers are known by the top bit, once it has registered a hook."""

    def __init__(self, order: ByteOrder, server: "_LamaServer | None") -> None:
        decoder = lamamq.BrokerDecoder(order=order)
        decoder.awaited = AwaitedIds(lambda number: self._hooks and number >= lamamq.BROKER_ID_BIT)
        super().__init__(decoder, order)
        self._hooks = False
        self._frames = 0
        self._server = server

    def layout(self, data: bytes) -> tuple[str, Layout]:
        if self._frames == 0:
            name_end = 5 + int.from_bytes(data[1:5], self.order)
            if len(data) > name_end:
                return "Authentification", lamamq_layouts.AUTHENTICATION_WITH_KEY
            return "Authentification", lamamq_layouts.AUTHENTICATION
        if self._frames == 1:
            return "Protocol version to use", lamamq_layouts.VERSION_CHOICE
        if self._hooks and int.from_bytes(data[:4], self.order) >= lamamq.BROKER_ID_BIT:
            return "Answer", lamamq_layouts.ANSWER
        return _message_name(data), lamamq_layouts.MESSAGE

    def passed(self, packet: Any) -> None:  # noqa: ANN401
        self._frames += 1
        if isinstance(packet, lamamq.Register):
            self._hooks = True
        if self._server is not None and not isinstance(packet, lamamq.Answer):
            identifier = getattr(packet, "message_id", None)
            error = getattr(packet, "error", None)  # a request that was rejected is answered too
            if identifier is None and isinstance(error, lamamq.LamaError):
                identifier = error.message_id
            if identifier is not None:
                self._server.awaited.add(identifier)


class _LamaServer(Side):
    """What a server sends: `awaited` holds the ids of the requests that the capture shows."""

    def __init__(self, order: ByteOrder, *, alone: bool) -> None:
        decoder = lamamq.ClientDecoder(order=order)
        if alone:
            decoder.awaited = AwaitedIds(lambda number: number < lamamq.BROKER_ID_BIT)
        self.awaited = decoder.awaited
        super().__init__(decoder, order)
        self._offered = False
        self._answers = False

    def decode_at(self, data: Buffer, start: int) -> tuple[Any, int] | None:
        identifier = int.from_bytes(data[start : start + 4], self.order)
        self._answers = identifier == 0 or identifier in self.awaited
        return super().decode_at(data, start)

    def layout(self, data: bytes) -> tuple[str, Layout]:
        if not self._offered and any(data[:4]):
            return "Supported protocol version", lamamq_layouts.VERSION_OFFER
        if self._answers or data[4:5] not in {b"\x01", b""}:
            return "Answer", lamamq_layouts.ANSWER
        return _message_name(data), lamamq_layouts.MESSAGE

    def passed(self, packet: Any) -> None:  # noqa: ANN401
        self._offered = self._offered or isinstance(packet, lamamq.VersionOffer)


def _message_name(data: bytes) -> str:
    if len(data) < 5:
        return "message"
    return lamamq_layouts.MESSAGES.get(data[4], "unknown Message type")


# --- Both -----------------------------------------------------------------------------------------

_LARGE: Final = FLEXIMQ_MESSAGE_BYTES_CEILING


def sides(protocol: Protocol, order: ByteOrder, *, alone: bool) -> tuple[Side, Side]:
    """Return how the client's bytes and the server's are read.

    `alone` says that only one of the two was captured.
    """
    match protocol:
        case Protocol.RHEOS1:
            client = _Rheos1Client(rheos1.BrokerDecoder(), order)
            return client, _Rheos1Server(rheos1.ClientDecoder(), order)
        case Protocol.RHEOS2:
            return (
                _Rheos2(rheos2.BrokerDecoder(), order, from_client=True),
                _Rheos2(rheos2.ClientDecoder(), order, from_client=False),
            )
        case Protocol.HERALD:
            return _Herald(order), _Herald(order)
        case Protocol.FLEXIMQ:
            return (
                _Fleximq(fleximq.BrokerDecoder(message_bytes_max=_LARGE), order),
                _Fleximq(fleximq.ClientDecoder(message_bytes_max=_LARGE), order),
            )
        case _:
            server = _LamaServer(order, alone=alone)
            return _LamaClient(order, None if alone else server), server
