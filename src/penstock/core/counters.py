"""Counts that the broker keeps: per batch, never per message."""

import dataclasses
from collections import Counter

from penstock.model import Protocol

__all__ = ["Counters"]


@dataclasses.dataclass(slots=True)
class Counters:
    """Since the start, by protocol."""

    sessions_opened: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_received: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_received_by_flight: int = 0
    """Rows of tables."""
    messages_sent: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_dropped: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_undeliverable: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    messages_unreadable: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    """Messages that the log could not give to a client that was served from it, wanted or not."""
    frames_rejected: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    connections_failed: Counter[str] = dataclasses.field(default_factory=Counter)
