"""The packets of Rheos v1 as frozen values. Ids are 16 bytes, names are bytes of any kind."""

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
"""Also the first byte of every response, by which a client knows one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A client creates a topic, subscribes to one or publishes to one."""

    client_id: bytes
    opcode: OpCode
    name: bytes
    payload: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The broker's answer to a request; `message_id` is the broker's, requests carry none."""

    message_id: bytes
    code: AckCode


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """A delivered message, with the client id of who published it."""

    sender_id: bytes
    payload: bytes


ClientPacket: TypeAlias = Acknowledgment | Response
"""What a client receives."""

Packet: TypeAlias = Request | ClientPacket
