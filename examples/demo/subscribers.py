"""Chapter 2: a subscriber of each protocol for each topic."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from examples.demo.screen import chapter, line, table
from examples.demo.topics import topic_for

import penstock
from penstock.client import Delivery, Stream
from penstock.protocols import PROTOCOLS, Protocol

__all__ = ["Subscriptions", "receive", "show", "subscribe_all"]

RECEIVE_SECONDS_MAX = 20.0
Subscriptions = dict[tuple[Protocol, str], Stream[Delivery]]
"""Subscriptions by protocol and topic."""


@asynccontextmanager
async def subscribe_all(url: str, topics: Iterable[str]) -> AsyncIterator[Subscriptions]:
    """Subscribe to each topic with each protocol.

    Each subscription has its own client, because a delivery of Rheos v1 carries no topic.
    """
    async with AsyncExitStack() as stack:
        subscriptions: Subscriptions = {}
        for topic in topics:
            for protocol in PROTOCOLS:
                client = penstock.connect(url, protocol=protocol)
                await stack.enter_async_context(client)
                stream = client.subscribe(topic_for(topic, protocol))
                subscriptions[protocol, topic] = await stack.enter_async_context(stream)
        yield subscriptions


async def receive(stream: Stream[Delivery], count: int) -> list[bytes]:
    """Wait for `count` messages; return their values."""
    return [(await stream.get(timeout=RECEIVE_SECONDS_MAX)).value for _ in range(count)]


async def show(subscriptions: Subscriptions, senders: dict[str, tuple[str, int]]) -> None:
    """Show how many messages of each topic the clients of each protocol received.

    `senders` has the sending protocol and the number of messages of each topic.
    """
    chapter("2 Five protocols at once", "Each sender uses its own; clients of all five receive it.")
    last = {}
    rows = []
    for protocol in PROTOCOLS:
        counts = []
        for topic, (_, count) in senders.items():
            values = await receive(subscriptions[protocol, topic], count)
            counts.append(len(values))
            last[topic] = values[-1]
        rows.append([protocol.label, *counts])
    columns = [f"{topic.split('/', 1)[1]}\n{sent_by}" for topic, (sent_by, _) in senders.items()]
    table("messages received", ["receiver \\ sender", *columns], rows)
    topic, value = next(iter(last.items()))
    line(f"The last message of {topic}, the same bytes in all protocols: {value.decode()}")
