"""herald: its declaration and its limits."""

from typing import Final

from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns

__all__ = ["HERALD", "HERALD_PAYLOAD_BYTES_MAX"]

HERALD_PAYLOAD_BYTES_MAX: Final = 1_048_576
"""Fixed by the specification: MAX_PAYLOAD_SIZE."""

HERALD: Final = Protocol(
    number=4,
    label="herald",
    title="herald",
    orders=("little", "big"),
    transports=frozenset({"tcp", "tls", "ipc", "udp"}),
    carries=Carries(channels=True),
    limits=(Limit("payload_bytes_max", HERALD_PAYLOAD_BYTES_MAX, 64, HERALD_PAYLOAD_BYTES_MAX),),
    retriable=frozenset({4}),  # RATE_LIMIT_EXCEEDED
    refusal=RefusalSigns(unauthenticated=8),  # UNAUTHORIZED
    detection="penstock.wire.herald.detection:DETECTION",
    encoder="penstock.core.encoders.herald:HeraldEncoder",
    gateway="penstock.gateway.herald:HeraldGateway",
    client="penstock.client.sessions.herald:herald_sessions",
    decode="penstock.decode.herald:READING",
    capture="penstock.spark.capture_roles.herald:herald_role",
    conform="penstock.conform.herald:SUITE",
    bench="penstock.cli.bench.herald:HeraldWire",
)
