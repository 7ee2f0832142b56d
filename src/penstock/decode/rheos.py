"""Layouts of Rheos v1 and v2; names are those of the specifications."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.decode.layout import Data, Form, Layout, Number, Window
from penstock.limits import RHEOS1_BODY_BYTES_MAX, RHEOS_BODY_BYTES_MAX

__all__ = [
    "ACKNOWLEDGMENT_1",
    "ACKNOWLEDGMENT_2",
    "EVENT_2",
    "NOTHING_1",
    "NOTHING_2",
    "OPERATIONS",
    "REQUEST_1",
    "RESPONSE_1",
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
