"""A span: one part of a message's way, with its time."""

import enum
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

__all__ = ["Span", "SpanName", "received_id"]


class SpanName(enum.StrEnum):
    """The parts of a message's way. All are children of RECEIVED."""

    RECEIVED = "received"
    APPENDED = "appended"
    DURABLE = "durable"
    DELIVERED = "delivered"
    SPARK_BATCH = "spark batch"


class Span(NamedTuple):
    """A span that has ended. Times are microseconds since the epoch; a parent of 0 is none."""

    name: SpanName
    trace_id: int
    span_id: int
    parent_id: int
    start_us: int
    end_us: int
    attributes: Mapping[str, str | int]
    error: str | None = None


def received_id(message_id: bytes) -> int:
    """Return the id of the span RECEIVED of a message.

    It follows from the message id, so other nodes and Spark know the parent of their spans.
    """
    return int.from_bytes(blake2b(message_id, digest_size=8).digest(), "big") or 1
