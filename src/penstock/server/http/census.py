"""All clients counted: in slices, so that others have their turn between them."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.limits import HTTP_SLICE_ENTRIES
from penstock.protocols import Protocol
from penstock.server.http.answers import Client, ProtocolName

__all__ = ["Census", "client_of", "in_slices", "is_slow", "label_of", "moment", "take_census"]

Entry = TypeVar("Entry")


@dataclasses.dataclass(slots=True)
class Census:
    """What there is at a time, by protocol."""

    clients: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    subscriptions: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    waiting_bytes: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    slow: Counter[Protocol] = dataclasses.field(default_factory=Counter)
    slowest: list[Session] = dataclasses.field(default_factory=list)
    """Some that are slow."""


async def in_slices(entries: Sequence[Entry]) -> AsyncIterator[Entry]:
    """Go through entries, letting others have their turn now and then."""
    for first in range(0, len(entries), HTTP_SLICE_ENTRIES):
        if first:
            await asyncio.sleep(0)
        for entry in entries[first : first + HTTP_SLICE_ENTRIES]:
            yield entry


async def take_census(broker: Broker, *, slowest_max: int = 0) -> Census:
    """Count all clients."""
    census = Census()
    async for session in in_slices(list(broker.sessions)):
        protocol = session.encoding.protocol
        census.clients[protocol] += 1
        census.subscriptions[protocol] += len(session.subscriptions)
        census.waiting_bytes[protocol] += session.link.buffered
        if is_slow(session):
            census.slow[protocol] += 1
            if len(census.slowest) < slowest_max:
                census.slowest.append(session)
    return census


def is_slow(session: Session) -> bool:
    """Tell whether a client gets no live messages for want of reading."""
    return session.feed is not None or session.slow or session.link.congested


def client_of(broker: Broker, session: Session) -> Client:
    """Return what is shown of a client."""
    behind = 0
    if session.feed is not None:
        behind = max(broker.log.next_offset - session.feed.position, 0)
    return Client(
        connection=session.link.connection,
        id=session.number,
        protocol=label_of(session),
        name=session.name,
        principal=session.principal.name,
        address=session.link.peer,
        since=moment(session.since_us),
        subscriptions=len(session.subscriptions),
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
    """Return the name of a client's protocol."""
    label: ProtocolName = session.encoding.protocol.label
    return label


def moment(us: int) -> datetime:
    """Return a time that is given in microseconds since the epoch."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
