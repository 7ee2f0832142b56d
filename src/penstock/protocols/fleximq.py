"""fleximq: its declaration and its limits."""

from typing import Final

from penstock.limits import (
    FLEXIMQ_KEEPALIVE_INTERVALS_MAX,
    FLEXIMQ_KEEPALIVE_SECONDS,
    GIB,
    KIB,
    MIB,
    REQUEST_ID_BYTES_CEILING,
    REQUEST_ID_BYTES_MAX,
)
from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns

__all__ = [
    "FLEXIMQ",
    "FLEXIMQ_CACHED_HEADER_BYTES_MAX",
    "FLEXIMQ_HEADERS_CACHED_BYTES_MAX",
    "FLEXIMQ_HEADERS_CACHED_MAX",
    "FLEXIMQ_HEADER_BYTES_MAX",
    "FLEXIMQ_HEADER_DEPTH_MAX",
    "FLEXIMQ_HEADER_ELEMENTS_CEILING",
    "FLEXIMQ_HEADER_ELEMENTS_MAX",
    "FLEXIMQ_HEADER_STRING_BYTES_MAX",
    "FLEXIMQ_MESSAGE_BYTES_CEILING",
    "FLEXIMQ_MESSAGE_BYTES_MAX",
    "FLEXIMQ_PAYLOAD_DEPTH_CEILING",
    "FLEXIMQ_PAYLOAD_DEPTH_MAX",
    "FLEXIMQ_ROUTING_ENTRIES_CEILING",
    "FLEXIMQ_ROUTING_ENTRIES_MAX",
]

FLEXIMQ_HEADER_BYTES_MAX: Final = 64 * KIB
"""Section 7.1, maximum header size."""
FLEXIMQ_MESSAGE_BYTES_MAX: Final = 16 * MIB
FLEXIMQ_MESSAGE_BYTES_CEILING: Final = 1 * GIB
"""Section 7.1, maximum total message size; no setting may exceed it."""
FLEXIMQ_ROUTING_ENTRIES_MAX: Final = 1024
FLEXIMQ_ROUTING_ENTRIES_CEILING: Final = 4096
FLEXIMQ_HEADER_DEPTH_MAX: Final = 8
FLEXIMQ_HEADER_ELEMENTS_MAX: Final = 8192
FLEXIMQ_HEADER_ELEMENTS_CEILING: Final = 65_536
"""A ceiling is the highest value of its setting. Encoders and clients, which do not know the
settings of the broker, use the ceilings."""
FLEXIMQ_HEADER_STRING_BYTES_MAX: Final = 65_535
FLEXIMQ_PAYLOAD_DEPTH_MAX: Final = 64
FLEXIMQ_PAYLOAD_DEPTH_CEILING: Final = 512
"""Arrays and maps inside each other that every reader of a payload can follow. The number of
elements of a payload has no limit but its bytes."""
FLEXIMQ_HEADERS_CACHED_MAX: Final = 65_536
"""Distinct headers in the cache of a process; a full cache is emptied."""
FLEXIMQ_HEADERS_CACHED_BYTES_MAX: Final = 16 * MIB
"""Bytes of that cache: headers of 96 bytes reach both limits together."""
FLEXIMQ_CACHED_HEADER_BYTES_MAX: Final = 4 * KIB
"""A longer header is parsed again for each run of messages, so that clients cannot fill the cache
with a few of them."""

FLEXIMQ: Final = Protocol(
    number=3,
    label="fleximq",
    title="fleximq",
    orders=("big",),
    transports=frozenset({"tcp", "tls", "ipc", "ws", "wss", "stdio"}),
    carries=Carries(status=True, messagepack=True, requests=True, group_answers=True),
    limits=(
        Limit("header_bytes_max", FLEXIMQ_HEADER_BYTES_MAX, 64, FLEXIMQ_HEADER_BYTES_MAX),
        Limit("message_bytes_max", FLEXIMQ_MESSAGE_BYTES_MAX, 64, FLEXIMQ_MESSAGE_BYTES_CEILING),
        Limit(
            "header_elements_max", FLEXIMQ_HEADER_ELEMENTS_MAX, 32, FLEXIMQ_HEADER_ELEMENTS_CEILING
        ),
        Limit(
            "routing_entries_max", FLEXIMQ_ROUTING_ENTRIES_MAX, 1, FLEXIMQ_ROUTING_ENTRIES_CEILING
        ),
        Limit("reqrep_id_bytes_max", REQUEST_ID_BYTES_MAX, 26, REQUEST_ID_BYTES_CEILING),
        Limit("payload_depth_max", FLEXIMQ_PAYLOAD_DEPTH_MAX, 1, FLEXIMQ_PAYLOAD_DEPTH_CEILING),
        Limit("keepalive_interval_ms", 1000 * FLEXIMQ_KEEPALIVE_SECONDS, 100, 3_600_000),
        Limit("keepalive_misses_max", FLEXIMQ_KEEPALIVE_INTERVALS_MAX, 1, 100),
    ),
    credentials=("token", "username", "password", "api_key"),
    retriable=frozenset({429, 503, 605}),
    refusal=RefusalSigns(unauthenticated=401),
    detection="penstock.wire.fleximq.detection:DETECTION",
    encoder="penstock.core.encoders.fleximq:FleximqEncoder",
    gateway="penstock.gateway.fleximq:FleximqGateway",
    remote="penstock.gateway.fleximq.remote:RemoteExchange",
    services="penstock.gateway.fleximq.service_topics:start_service_topics",
    client="penstock.client.sessions.fleximq:fleximq_sessions",
    decode="penstock.decode.fleximq:READING",
    capture="penstock.spark.capture_roles.fleximq:fleximq_role",
    conform="penstock.conform.fleximq:SUITE",
    bench="penstock.cli.bench.fleximq:FleximqWire",
)
