"""Clients as the API shows them, and their totals by protocol.

Long lists are processed in slices, so that the event loop serves others in between.
"""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import TypeVar

from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.limits import HTTP_LISTS_MAX, HTTP_SLICE_SECONDS
from penstock.protocols import Protocol
from penstock.server.http.schemas import Client, ProtocolName

__all__ = [
    "ClientCounts",
    "ListGate",
    "client_of",
    "count_clients",
    "in_slices",
    "is_slow",
    "label_of",
    "utc_time",
]

Entry = TypeVar("Entry")


@dataclasses.dataclass(slots=True)
class ClientCounts:
    """Totals by protocol at one moment."""

    clients: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    subscriptions: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    waiting_bytes: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    slow: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    slowest: list[Session] = dataclasses.field(default_factory=list)
    """Some of the slow sessions."""


class ListGate:
    """Limits how many requests of a broker read lists at the same time."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(HTTP_LISTS_MAX)


async def in_slices(entries: Iterable[Entry]) -> AsyncIterator[Entry]:
    """Yield entries, and yield to the event loop after each slice."""
    ends = time.monotonic() + HTTP_SLICE_SECONDS
    for entry in entries:
        yield entry
        if time.monotonic() > ends:
            await asyncio.sleep(0)
            ends = time.monotonic() + HTTP_SLICE_SECONDS


async def count_clients(broker: Broker, *, slowest_max: int = 0) -> ClientCounts:
    """Count all clients; return up to `slowest_max` slow sessions as well."""
    counts = ClientCounts()
    async for session in in_slices(broker.sessions):
        protocol = session.encoding.protocol
        counts.clients[protocol] += 1
        counts.subscriptions[protocol] += len(session.subscriptions) + len(session.memberships)
        counts.waiting_bytes[protocol] += session.link.buffered
        if is_slow(session):
            counts.slow[protocol] += 1
            if len(counts.slowest) < slowest_max:
                counts.slowest.append(session)
    return counts


def is_slow(session: Session) -> bool:
    """Return whether a client gets no live messages because it reads too slowly."""
    return bool(session.feeds) or session.slow or session.link.congested


def client_of(broker: Broker, session: Session) -> Client:
    """Return a client as the API shows it."""
    behind = 0 if broker.catch_up is None else broker.catch_up.behind(session)
    return Client(
        connection=session.link.connection,
        id=session.number,
        protocol=label_of(session),
        name=session.name,
        principal=session.principal.name,
        address=session.link.peer,
        since=utc_time(session.since_us),
        subscriptions=len(session.subscriptions) + len(session.memberships),
        received_messages=session.messages_received,
        received_bytes=session.bytes_received,
        sent_messages=session.messages_sent,
        sent_bytes=session.bytes_sent,
        dropped_messages=session.dropped,
        waiting_bytes=session.link.buffered,
        slow=is_slow(session),
        behind=behind,
    )


def label_of(session: Session) -> ProtocolName:
    """Return the name of a session's protocol."""
    label: ProtocolName = session.encoding.protocol.label
    return label


def utc_time(us: int) -> datetime:
    """Return the UTC time of microseconds since the epoch."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
