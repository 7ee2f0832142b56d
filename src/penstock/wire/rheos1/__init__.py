"""Rheos v1: create, subscribe and publish on topics with binary names, each acknowledged."""

from penstock.wire.rheos import (
    AckCode,
    CorruptedData,
    CorruptedTopic,
    DuplicateTopic,
    InvalidOperation,
    OpCode,
    RheosError,
    TopicNotFound,
    TranslationError,
)
from penstock.wire.rheos1.decoder import BrokerDecoder, ClientDecoder
from penstock.wire.rheos1.encoder import encode
from penstock.wire.rheos1.packets import Acknowledgment, ClientPacket, Packet, Request, Response
from penstock.wire.rheos1.states import BROKER, CLIENT, BrokerState, ClientState
from penstock.wire.rheos1.topic import Topic, decode_topic, encode_topic

__all__ = [
    "BROKER",
    "CLIENT",
    "AckCode",
    "Acknowledgment",
    "BrokerDecoder",
    "BrokerState",
    "ClientDecoder",
    "ClientPacket",
    "ClientState",
    "CorruptedData",
    "CorruptedTopic",
    "DuplicateTopic",
    "InvalidOperation",
    "OpCode",
    "Packet",
    "Request",
    "Response",
    "RheosError",
    "Topic",
    "TopicNotFound",
    "TranslationError",
    "decode_topic",
    "encode",
    "encode_topic",
]
