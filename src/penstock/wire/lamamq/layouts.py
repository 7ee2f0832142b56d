"""The fixed parts of LamaMQ packets, compiled once for each byte order.

The basic types of the specification:

    STRING, BUFFER        ARRAY
    ┌────────┬───────┐    ┌────────┬──────────────────┐
    │ size   │ bytes │    │ count  │ count elements   │
    │ u32    │       │    │ u16    │                  │
    └────────┴───────┘    └────────┴──────────────────┘

Handshake, in this order; none of the three has a message header:

    Authentication              VersionOffer                    VersionChoice
    ┌────────┬────────┬───────┐ ┌───────────────┬─────────────┐ ┌───────┬───────┐
    │ method │ name   │ [key  │ │ maximum       │ minimum     │ │ major │ minor │
    │ u8     │ STRING │ BUFFER│ │ u8 . u8       │ u8 . u8     │ │ u8    │ u8    │
    └────────┴────────┴───────┘ └───────────────┴─────────────┘ └───────┴───────┘

Then messages, each after its message header:

    0            4        5
    ┌────────────┬────────┬──────────────────┐
    │ message id │ type   │ body             │
    │ u32        │ u8     │ by type          │
    └────────────┴────────┴──────────────────┘

    PUSH, FORWARD
    ┌────────────┬─────────────┬─────────────────────────────────┬──────────────┬──────────┐
    │ created at │ routing key │ headers                         │ payload type │ payload  │
    │ u32        │ STRING      │ ARRAY of key STRING, val. STRING│ u8           │ by type  │
    └────────────┴─────────────┴─────────────────────────────────┴──────────────┴──────────┘

    SUBSCRIBE, UNSUBSCRIBE      UNREGISTER
    ┌─────────────┐             ┌───────────┐
    │ routing key │             │ hook name │
    │ STRING      │             │ STRING    │
    └─────────────┘             └───────────┘

    REGISTER
    ┌───────────┬──────────┬────────────┬──────────┬───────────┬──────────────────────────┐
    │ hook name │ priority │ timeout ms │ strategy │ hook type │ [type 16: conditions     │
    │ STRING    │ u32      │ u32        │ u8       │ u8        │  ARRAY of u8, STRINGs]   │
    └───────────┴──────────┴────────────┴──────────┴───────────┴──────────────────────────┘

An answer has an error in place of the type of other messages. Only the set of awaited ids tells the
two apart.

    0            4        5
    ┌────────────┬────────┬──────────────────┐
    │ message id │ error  │ [error > 0: text │
    │ u32        │ u8     │  STRING]         │
    └────────────┴────────┴──────────────────┘
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.model import ByteOrder

__all__ = ["LAYOUTS", "Layouts"]


class Layouts:
    """Structs of consecutive fields of fixed size, in one byte order."""

    __slots__ = ("array", "header", "hook", "message", "offer", "payload", "u32")

    def __init__(self, order: ByteOrder) -> None:
        mark = "<" if order == "little" else ">"
        self.u32 = struct.Struct(f"{mark}I")  # created at; size of a STRING or BUFFER
        self.array = struct.Struct(f"{mark}H")  # count
        self.offer = struct.Struct(f"{mark}4B")  # maximum major, minor, minimum major, minor
        self.header = struct.Struct(f"{mark}IB")  # message id, type or error
        self.message = struct.Struct(f"{mark}IBII")  # header, created at, size of routing key
        self.payload = struct.Struct(f"{mark}BI")  # payload type, size
        self.hook = struct.Struct(f"{mark}IIBB")  # priority, timeout, strategy, hook type


LAYOUTS: Final[Mapping[ByteOrder, Layouts]] = MappingProxyType(
    {"little": Layouts("little"), "big": Layouts("big")}
)
