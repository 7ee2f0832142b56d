"""Rheos v2: its declaration and its limits."""

from typing import Final

from penstock.limits import MIB
from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns

__all__ = ["RHEOS2", "RHEOS_BODY_BYTES_MAX"]

RHEOS_BODY_BYTES_MAX: Final = 16 * MIB
"""Body of a Rheos v2 packet, and payload of a Rheos v1 response."""

RHEOS2: Final = Protocol(
    number=2,
    label="rheos2",
    title="Rheos v2",
    orders=("little",),
    transports=frozenset({"tcp", "tls", "ipc"}),
    carries=Carries(sender_ids=True, acknowledgments=True, message_ids=True, topics_created=True),
    limits=(Limit("body_bytes_max", RHEOS_BODY_BYTES_MAX, 64, RHEOS_BODY_BYTES_MAX),),
    refusal=RefusalSigns(closes_unauthenticated=True),
    detection="penstock.wire.rheos_detection:DETECTION",
    encoder="penstock.core.encoders.rheos:Rheos2Encoder",
    gateway="penstock.gateway.rheos2:Rheos2Gateway",
    client="penstock.client.sessions.rheos:rheos2_sessions",
    decode="penstock.decode.rheos:RHEOS2_READING",
    capture="penstock.spark.capture_roles.rheos:rheos2_role",
    conform="penstock.conform.rheos2:SUITE",
    bench="penstock.cli.bench.rheos2:Rheos2Wire",
)
