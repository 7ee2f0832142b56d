"""Rheos v1: its declaration and its limits."""

from typing import Final

from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns

__all__ = ["RHEOS1", "RHEOS1_BODY_BYTES_MAX"]

RHEOS1_BODY_BYTES_MAX: Final = 131_074
"""Body of a Rheos v1 request. Fixed by the specification: two 16-bit lengths and their bytes."""

RHEOS1: Final = Protocol(
    number=1,
    label="rheos1",
    title="Rheos v1",
    orders=("little",),
    transports=frozenset({"tcp", "tls", "ipc"}),
    carries=Carries(sender_ids=True, acknowledgments=True, message_ids=True, topics_created=True),
    limits=(Limit("body_bytes_max", RHEOS1_BODY_BYTES_MAX, 64, RHEOS1_BODY_BYTES_MAX),),
    refusal=RefusalSigns(closes_unauthenticated=True),
    detection="penstock.wire.rheos_detection:DETECTION",
    encoder="penstock.core.encoders.rheos:Rheos1Encoder",
    gateway="penstock.gateway.rheos1:Rheos1Gateway",
    client="penstock.client.sessions.rheos:rheos1_sessions",
    decode="penstock.decode.rheos:RHEOS1_READING",
    capture="penstock.spark.capture_roles.rheos:rheos1_role",
    conform="penstock.conform.rheos1:SUITE",
    bench="penstock.cli.bench.rheos1:Rheos1Wire",
)
