"""Layouts of Rheos v1 and v2; names are those of the specifications."""

import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.decode.layout import Data, Form, Layout, Number, Window
from penstock.decode.reading import Reading, Side
from penstock.errors import WireError
from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.protocols.rheos1 import RHEOS1, RHEOS1_BODY_BYTES_MAX
from penstock.protocols.rheos2 import RHEOS2, RHEOS_BODY_BYTES_MAX
from penstock.wire import rheos1, rheos2
from penstock.wire.decoder import Decoder
from penstock.wire.detect import conclude
from penstock.wire.rheos import RheosError

__all__ = [
    "ACKNOWLEDGMENT_1",
    "ACKNOWLEDGMENT_2",
    "EVENT_2",
    "NOTHING_1",
    "NOTHING_2",
    "OPERATIONS",
    "REQUEST_1",
    "RESPONSE_1",
    "RHEOS1_READING",
    "RHEOS2_READING",
]

OPERATIONS: Final[Mapping[int, str]] = MappingProxyType({0: "CREATE", 1: "SUBSCRIBE", 2: "PUBLISH"})
"""Code 3, INVALID_OPERATION, is reserved: no packet may carry it."""

_CODES: Final = MappingProxyType({0: "SUCCESS", 1: "FAILED"})
_MAGIC: Final = MappingProxyType({0xFA: "Rheos packet"})
_ACK_MAGIC: Final = MappingProxyType({0xAC: "acknowledgment"})

# --- v1 -------------------------------------------------------------------------------------------

REQUEST_1: Final[Layout] = (
    Number("Magic Byte", 1, _MAGIC, closed=True),
    Number("Payload Length", 4, maximum=RHEOS1_BODY_BYTES_MAX),
    Data("Client ID", 16, Form.UUID),
    Number("Operation Code", 1, OPERATIONS, closed=True),
    Window(
        "Payload Length",
        (
            Number("Length of topic name", 2),
            Data("Topic name", "Length of topic name", Form.NAME),
            Number("Payload length", 2),
            Data("Payload data", "Payload length", Form.NAME),
        ),
    ),
)

ACKNOWLEDGMENT_1: Final[Layout] = (
    Number("Acknowledgment Magic Byte", 1, _ACK_MAGIC, closed=True),
    Data("Message ID", 16, Form.UUID),
    Number("Acknowledgment Code", 1, _CODES, closed=True),
)

RESPONSE_1: Final[Layout] = (
    Number("Header Size", 1, MappingProxyType({21: "response"}), closed=True),
    Number("Payload Length", 4, maximum=RHEOS_BODY_BYTES_MAX),
    Data("Sender ID", 16, Form.UUID),
    Data("Payload content", "Payload Length", Form.NAME),
)

NOTHING_1: Final[Layout] = (
    Number("Magic Byte or Header Size", 1, MappingProxyType({}), closed=True),
)

# --- v2 -------------------------------------------------------------------------------------------

EVENT_2: Final[Layout] = (
    Number("Magic", 1, _MAGIC, closed=True),
    Number("Payload Length", 4, maximum=RHEOS_BODY_BYTES_MAX),
    Data("Client ID", 16, Form.UUID),
    Number("Operation Code", 1, OPERATIONS, closed=True),
    Window(
        "Payload Length",
        (
            Number("Event Name Length", 2),
            Number("Data Length", 4),
            Data("Event Name", "Event Name Length", Form.NAME),
            Data("Data", "Data Length", Form.NAME),
        ),
    ),
    Number("CRC32", 4, sum=True),
)

ACKNOWLEDGMENT_2: Final[Layout] = (
    Number("Magic", 1, _ACK_MAGIC, closed=True),
    Number("Ack Code", 1, _CODES, closed=True),
    Data("Message ID", 16, Form.UUID),
    Number("CRC32", 4, sum=True),
)

NOTHING_2: Final[Layout] = (Number("Magic", 1, MappingProxyType({}), closed=True),)


class _Rheos1Client(Side):
    mark = b"\xfa"

    def layout(self, data: bytes) -> tuple[str, Layout]:
        return _operation(data, "request"), REQUEST_1


class _Rheos1Server(Side):
    def layout(self, data: bytes) -> tuple[str, Layout]:
        match data[:1]:
            case b"\xac":
                return "Acknowledgment Packet", ACKNOWLEDGMENT_1
            case b"\x15":
                return "Response Packet", RESPONSE_1
        return "no Rheos packet", NOTHING_1


class _Rheos2(Side):
    mark = b"\xfa"

    def __init__(self, decoder: Decoder[Any], order: ByteOrder, *, from_client: bool) -> None:
        super().__init__(decoder, order)
        self._from_client = from_client

    def layout(self, data: bytes) -> tuple[str, Layout]:
        match data[:1]:
            case b"\xfa":
                return _operation(data, "event"), EVENT_2
            case b"\xac" if not self._from_client:
                return "Acknowledgement Packet", ACKNOWLEDGMENT_2
        return "no Rheos packet", NOTHING_2


def _operation(data: bytes, what: str) -> str:
    operation = OPERATIONS.get(data[21], "unknown") if len(data) > 21 else "Rheos"
    return f"{operation} {what}"


# --- Readings -------------------------------------------------------------------------------------


def _is_client(data: bytes) -> bool:
    return data[:1] not in {b"\xac", b"\x15"}


def _version(data: bytes) -> Protocol | None:
    """Return the version of a server, or of a client in the middle of a connection."""
    match data[:1]:
        case b"\xfa":
            try:
                found = conclude(data)
            except WireError:
                return None
            return None if found is None else found.protocol
        case b"\x15":
            return RHEOS1
        case b"\xac":
            checksum = int.from_bytes(data[18:22], "little")
            return RHEOS2 if len(data) >= 22 and zlib.crc32(data[:18]) == checksum else RHEOS1
    return None


def _error_name(error: WireError) -> str:
    if isinstance(error, RheosError):
        return error.code.removeprefix("rheos-").replace("-", "_").upper()
    return "CORRUPTED_DATA"


RHEOS1_READING: Final = Reading(
    sides=lambda order, alone: (  # noqa: ARG005
        _Rheos1Client(rheos1.BrokerDecoder(), order),
        _Rheos1Server(rheos1.ClientDecoder(), order),
    ),
    is_client=_is_client,
    is_server=lambda data: _version(data) is RHEOS1,
    order=lambda of_client, others: "little",  # noqa: ARG005
    error_name=_error_name,
)
RHEOS2_READING: Final = Reading(
    sides=lambda order, alone: (  # noqa: ARG005
        _Rheos2(rheos2.BrokerDecoder(), order, from_client=True),
        _Rheos2(rheos2.ClientDecoder(), order, from_client=False),
    ),
    is_client=_is_client,
    is_server=lambda data: _version(data) is RHEOS2,
    order=lambda of_client, others: "little",  # noqa: ARG005
    error_name=_error_name,
)
