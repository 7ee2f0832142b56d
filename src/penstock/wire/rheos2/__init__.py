"""Rheos v2: create, subscribe and publish on event streams, under a CRC32 in both directions."""

from penstock.wire.rheos import (
    AckCode,
    CorruptedData,
    DuplicateTopic,
    InvalidOperation,
    OpCode,
    RheosError,
    TopicNotFound,
)
from penstock.wire.rheos2.decoder import BrokerDecoder, ClientDecoder
from penstock.wire.rheos2.encoder import encode
from penstock.wire.rheos2.packets import Acknowledgment, Event, Packet
from penstock.wire.rheos2.states import BROKER, CLIENT, BrokerState, ClientState

__all__ = [
    "BROKER",
    "CLIENT",
    "AckCode",
    "Acknowledgment",
    "BrokerDecoder",
    "BrokerState",
    "ClientDecoder",
    "ClientState",
    "CorruptedData",
    "DuplicateTopic",
    "Event",
    "InvalidOperation",
    "OpCode",
    "Packet",
    "RheosError",
    "TopicNotFound",
    "encode",
]
