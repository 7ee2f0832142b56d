"""Messages for a pipeline of many tables, at a constant rate, and their sums.

    python -m bench.spark.soak_load URL RATE SECONDS

Prints the sums of the sent messages as JSON.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

import penstock
from penstock.client import Client, Request

TOPICS = 20
DEVICES = 50
BAD_EVERY = 10_007
"""One message of so many cannot be decoded: a dead letter."""
REQUESTS_EACH_SECOND = 20
TICK_SECONDS = 0.1


class Sums(msgspec.Struct):
    """Counts and sums of the sent messages; lists are by topic."""

    sent: list[int]
    good: list[int]
    ids: list[int]
    newest: list[dict[str, int]]
    """The last id of each device."""
    requests: int = 0


def topic_of(number: int) -> str:
    """Return the name of a topic."""
    return f"soak/{number:02}"


def format_of(topic: int) -> str:
    """Return the format of a topic's messages."""
    return {16: "csv", 17: "text"}.get(topic, "json")


def value_of(topic: int, number: int, moment_ms: int) -> bytes:
    """Return the message with an id; it is no record if the id is a multiple of BAD_EVERY."""
    if number % BAD_EVERY == 0:
        return b"lost <%d" % number
    device, celsius = number % DEVICES, number % 400 / 10
    match format_of(topic):
        case "csv":
            return b"%d,d%d,%.1f,%d" % (number, device, celsius, moment_ms)
        case "text":
            return b"<%d> d%d %.1f" % (number, device, celsius)
    return b'{"id":%d,"device":"d%d","values":{"celsius":%.1f},"measured":%d,"note":"as usual"}' % (
        number,
        device,
        celsius,
        moment_ms,
    )


async def send(client: Client, sums: Sums, *, rate: float, seconds: float) -> None:
    """Publish messages to all topics in turn."""
    begun = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - begun) < seconds:
        due = int(passed * rate) // TOPICS * TOPICS
        numbers = range(sent // TOPICS + 1, due // TOPICS + 1)
        moment_ms = time.time_ns() // 1_000_000
        if numbers:
            for topic in range(TOPICS):
                values = [value_of(topic, number, moment_ms) for number in numbers]
                await client.publish_many(topic_of(topic), values)
                _count(sums, topic, numbers)
        sent = due
        await asyncio.sleep(TICK_SECONDS)


def _count(sums: Sums, topic: int, numbers: range) -> None:
    good = [number for number in numbers if number % BAD_EVERY]
    sums.sent[topic] += len(numbers)
    sums.good[topic] += len(good)
    sums.ids[topic] += sum(good)
    sums.newest[topic] |= {f"d{number % DEVICES}": number for number in good}


@asynccontextmanager
async def requests(url: str, sums: Sums) -> AsyncIterator[None]:
    """Send requests between two clients while the context lasts."""

    async def echo(request: Request) -> object:
        return request.payload

    async def ask(client: Client, target: int) -> None:
        while True:
            await client.request(target, "/echo", sums.requests, timeout=60)
            sums.requests += 1
            if stopped.is_set():
                return
            await asyncio.sleep(1 / REQUESTS_EACH_SECOND)

    stopped = asyncio.Event()
    async with (
        penstock.connect(url, protocol="fleximq") as server,
        penstock.connect(url, protocol="fleximq") as client,
    ):
        server.serve("/echo", echo)
        asking = asyncio.create_task(ask(client, server.identity or 0))
        yield
        stopped.set()
        await asking


async def main() -> None:
    """Send for some seconds; print the sums."""
    url, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    sums = Sums([0] * TOPICS, [0] * TOPICS, [0] * TOPICS, [{} for _ in range(TOPICS)])
    async with penstock.connect(url, protocol="rheos2") as client:
        for topic in range(TOPICS):
            await client.create_topic(topic_of(topic))
        async with requests(url, sums):
            # A request and its reply are two messages.
            await send(client, sums, rate=rate - 2 * REQUESTS_EACH_SECOND, seconds=seconds)
    print(msgspec.json.encode(sums).decode())


if __name__ == "__main__":
    asyncio.run(main())
