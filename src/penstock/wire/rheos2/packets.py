"""The packets of Rheos v2 as frozen values. Ids are 16 bytes, names any bytes."""

import dataclasses
from typing import Final, TypeAlias

from penstock.wire.rheos import AckCode, OpCode

__all__ = ["ACKNOWLEDGMENT_BYTES", "Acknowledgment", "Event", "Packet"]

ACKNOWLEDGMENT_BYTES: Final = 22


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An operation on an event stream; a PUBLISH from the broker is a delivery.

    A delivery has the client id of its publisher.
    """

    client_id: bytes
    opcode: OpCode
    name: bytes
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The broker's answer to an event; `message_id` is assigned by the broker."""

    code: AckCode
    message_id: bytes


Packet: TypeAlias = Event | Acknowledgment
"""Packets that a client receives. A broker receives events only."""
