"""The packets of Rheos v1 as frozen values. Ids are 16 bytes, names any bytes."""

import dataclasses
from typing import Final, TypeAlias

from penstock.wire.rheos import AckCode, OpCode

__all__ = [
    "ACKNOWLEDGMENT_BYTES",
    "RESPONSE_HEADER_BYTES",
    "Acknowledgment",
    "ClientPacket",
    "Packet",
    "Request",
    "Response",
]

ACKNOWLEDGMENT_BYTES: Final = 18
RESPONSE_HEADER_BYTES: Final = 21
"""Also the first byte of every response, which identifies it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request to create a topic, subscribe to it or publish to it."""

    client_id: bytes
    opcode: OpCode
    name: bytes
    payload: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The broker's answer to a request; `message_id` is assigned by the broker."""

    message_id: bytes
    code: AckCode


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """A delivered message, with the client id of its publisher."""

    sender_id: bytes
    payload: bytes


ClientPacket: TypeAlias = Acknowledgment | Response
"""Packets that a client receives."""

Packet: TypeAlias = Request | ClientPacket
