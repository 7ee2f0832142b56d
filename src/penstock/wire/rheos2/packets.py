"""The packets of Rheos v2 as frozen values. Ids are 16 bytes, names are bytes of any kind."""

import dataclasses
from typing import Final, TypeAlias

from penstock.wire.rheos import AckCode, OpCode

__all__ = ["ACKNOWLEDGMENT_BYTES", "Acknowledgment", "Event", "Packet"]

ACKNOWLEDGMENT_BYTES: Final = 22


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A client's operation on an event stream, or, as PUBLISH to a subscriber, a delivery.

    A delivery carries the client id of who published it.
    """

    client_id: bytes
    opcode: OpCode
    name: bytes
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The broker's answer to an event; `message_id` is the broker's, events carry none."""

    code: AckCode
    message_id: bytes


Packet: TypeAlias = Event | Acknowledgment
"""What a client receives; a broker receives events only."""
