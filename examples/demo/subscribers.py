"""Who hears what: a client of each protocol for each topic."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from examples.demo.screen import chapter, seen, table
from examples.demo.topics import named

import penstock
from penstock.client import Delivery, Stream
from penstock.protocols import PROTOCOLS, Protocol

__all__ = ["Ears", "heard", "listeners", "tell"]

HEAR_SECONDS_MAX = 20.0
Ears = dict[tuple[Protocol, str], Stream[Delivery]]
"""Subscriptions by protocol and topic."""


@asynccontextmanager
async def listeners(url: str, topics: Iterable[str]) -> AsyncIterator[Ears]:
    """Subscribe to each topic in each protocol.

    With a client for each: a delivery of Rheos v1 does not say which topic it belongs to.
    """
    async with AsyncExitStack() as stack:
        ears: Ears = {}
        for topic in topics:
            for protocol in PROTOCOLS:
                client = penstock.connect(url, protocol=protocol)
                await stack.enter_async_context(client)
                stream = client.subscribe(named(topic, protocol))
                ears[protocol, topic] = await stack.enter_async_context(stream)
        yield ears


async def heard(stream: Stream[Delivery], count: int) -> list[bytes]:
    """Wait for so many messages; return their values."""
    return [(await stream.get(timeout=HEAR_SECONDS_MAX)).value for _ in range(count)]


async def tell(ears: Ears, senders: dict[str, tuple[str, int]]) -> None:
    """Show how many messages of each topic the clients of each protocol heard.

    `senders` has for each topic the protocol in which it was sent, and how many were.
    """
    chapter("2 Five protocols at once", "Each sends by its own; clients of all five hear it.")
    last = {}
    rows = []
    for protocol in PROTOCOLS:
        counts = []
        for topic, (_, count) in senders.items():
            values = await heard(ears[protocol, topic], count)
            counts.append(len(values))
            last[topic] = values[-1]
        rows.append([protocol.label, *counts])
    columns = [f"{topic.split('/', 1)[1]}\n{sent_by}" for topic, (sent_by, _) in senders.items()]
    table("messages heard", ["heard by \\ sent by", *columns], rows)
    topic, value = next(iter(last.items()))
    seen(f"The last of {topic}, the same bytes in all: {value.decode()}")
