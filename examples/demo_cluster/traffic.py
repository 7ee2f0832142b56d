"""Publishers that survive the loss of a node, and subscribers that count what arrives."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from examples.demo.errors import DemoFailed
from examples.demo.subscribers import Subscriptions, subscribe_all
from examples.demo.topics import CELLAR, KETTLE, ORDERS, STOCK, TANK, topic_for

import penstock
from penstock.client import Client
from penstock.errors import PenstockError
from penstock.protocols import PROTOCOLS, Protocol

__all__ = ["SENDERS", "Counts", "Publisher", "count_all", "publish_all"]

SENDERS = {
    KETTLE: "herald",
    CELLAR: "rheos1",
    TANK: "rheos2",
    STOCK: "fleximq",
    ORDERS: "lamamq",
}
"""The sending protocol of each topic."""

PART = 10
"""Messages that are sent before their arrival is checked."""
ARRIVE_SECONDS_MAX = 5.0
CONNECT_SECONDS = 5.0
SEND_SECONDS_MAX = 180.0
RETRY_SECONDS = 0.5
POLL_SECONDS = 0.02

Counts = dict[tuple[Protocol, str], Counter[int]]
"""How often each number came, by protocol of the subscriber and topic."""


class Publisher:
    """Sends the numbers of a topic, in order, and again those that did not arrive.

    herald and fleximq acknowledge nothing, so the arrival at a subscriber of the other node counts:
    it comes after the commit. A message whose connection is lost before is sent again, and may be
    in the log twice; `sent` has all that were sent.
    """

    def __init__(self, topic: str, urls: list[str], arrived: Counter[int]) -> None:
        self.topic = topic
        self.sent: Counter[int] = Counter()
        self.arrived = arrived
        self.moves = 0
        self._urls = urls

    async def publish(self, count: int) -> None:
        """Send 0 to `count` - 1."""
        protocol = PROTOCOLS[SENDERS[self.topic]]
        async with asyncio.timeout(SEND_SECONDS_MAX):
            while missing := [n for n in range(count) if not self.arrived[n]]:
                url = self._urls[self.moves % len(self._urls)]
                try:
                    async with penstock.connect(
                        url, protocol=protocol, timeout=CONNECT_SECONDS, reconnect=False
                    ) as client:
                        await self._send(client, topic_for(self.topic, protocol), missing)
                except (PenstockError, TimeoutError):
                    self.moves += 1  # to the other node
                    await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, client: Client, topic: str | int, numbers: list[int]) -> None:
        """Send numbers in parts; raise TimeoutError where a part does not arrive."""
        for start in range(0, len(numbers), PART):
            part = numbers[start : start + PART]
            for number in part:
                self.sent[number] += 1
                await client.publish(topic, json.dumps({"number": number}).encode())
            async with asyncio.timeout(ARRIVE_SECONDS_MAX):
                while not all(self.arrived[number] for number in part):
                    await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def count_all(url: str) -> AsyncIterator[Counts]:
    """Count what subscribers of all protocols receive of all topics, in the context."""
    async with subscribe_all(url, SENDERS) as subscriptions:
        counts: Counts = {place: Counter() for place in subscriptions}
        tasks = [
            asyncio.create_task(_count(subscriptions, place, counts[place]))
            for place in subscriptions
        ]
        try:
            yield counts
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _count(
    subscriptions: Subscriptions, place: tuple[Protocol, str], counter: Counter[int]
) -> None:
    async for delivery in subscriptions[place]:
        counter[json.loads(delivery.value)["number"]] += 1


async def publish_all(publishers: list[Publisher], count: int) -> None:
    """Run all publishers to their ends; raise DemoFailed if one needs too long."""
    try:
        await asyncio.gather(*(publisher.publish(count) for publisher in publishers))
    except TimeoutError:
        raise DemoFailed(f"not all arrived in {SEND_SECONDS_MAX:.0f} seconds") from None
