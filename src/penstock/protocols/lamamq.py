"""LamaMQ: its declaration and its limits."""

from typing import Final

from penstock.limits import (
    GIB,
    IDENTITY_NAME_BYTES_MAX,
    KIB,
    MESSAGE_HEADERS_BYTES_MAX,
    MESSAGE_HEADERS_MAX,
    MIB,
)
from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns

__all__ = [
    "LAMAMQ",
    "LAMAMQ_ERROR_MESSAGE_BYTES_MAX",
    "LAMAMQ_HEADERS_BYTES_MAX",
    "LAMAMQ_HEADERS_MAX",
    "LAMAMQ_HOOK_CONDITIONS_MAX",
    "LAMAMQ_HOOK_CONDITION_BYTES_MAX",
    "LAMAMQ_HOOK_NAME_BYTES_MAX",
    "LAMAMQ_IDENTITY_KEY_BYTES_MAX",
    "LAMAMQ_IDENTITY_NAME_BYTES_MAX",
    "LAMAMQ_PAYLOAD_BYTES_MAX",
]

LAMAMQ_IDENTITY_NAME_BYTES_MAX: Final = IDENTITY_NAME_BYTES_MAX
LAMAMQ_IDENTITY_KEY_BYTES_MAX: Final = 4 * KIB
LAMAMQ_HEADERS_MAX: Final = MESSAGE_HEADERS_MAX
LAMAMQ_HEADERS_BYTES_MAX: Final = MESSAGE_HEADERS_BYTES_MAX
LAMAMQ_PAYLOAD_BYTES_MAX: Final = 16 * MIB
LAMAMQ_ERROR_MESSAGE_BYTES_MAX: Final = 64 * KIB
LAMAMQ_HOOK_NAME_BYTES_MAX: Final = 255
LAMAMQ_HOOK_CONDITIONS_MAX: Final = 64
LAMAMQ_HOOK_CONDITION_BYTES_MAX: Final = 64 * KIB

LAMAMQ: Final = Protocol(
    number=5,
    label="lamamq",
    title="LamaMQ",
    orders=("big", "little"),
    transports=frozenset({"tcp", "tls", "ipc"}),
    carries=Carries(
        headers=True, created=True, hooks=True, acknowledgments=True, group_answers=True
    ),
    limits=(
        Limit("headers_max", LAMAMQ_HEADERS_MAX, 0, 65_535),
        Limit("headers_bytes_max", LAMAMQ_HEADERS_BYTES_MAX, 64, GIB),
        Limit("payload_bytes_max", LAMAMQ_PAYLOAD_BYTES_MAX, 64, GIB),
    ),
    credentials=("key",),
    retriable=frozenset({1, 3}),  # Server Exception, middleware timeout
    # One error number is used for all refusals. A broker that requires a key waits for it until the
    # handshake times out. A server's first answer is four bytes, so any bytes look like one.
    refusal=RefusalSigns(
        unauthenticated_words=("identity", "handshake"), other_protocol="versions "
    ),
    identity_key=True,
    detection="penstock.wire.lamamq.detection:DETECTION",
    encoder="penstock.core.encoders.lamamq:LamamqEncoder",
    gateway="penstock.gateway.lamamq:LamamqGateway",
    client="penstock.client.sessions.lamamq:lamamq_sessions",
    decode="penstock.decode.lamamq:READING",
    capture="penstock.spark.capture_roles.lamamq:lamamq_role",
    conform="penstock.conform.lamamq:SUITE",
    bench="penstock.cli.bench.lamamq:LamamqWire",
)
