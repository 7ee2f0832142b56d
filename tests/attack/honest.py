"""Well-behaved clients of all five protocols, which count what they sent, were promised and got.

Run as a process of its own: `python -m tests.attack.honest ADDRESS CLIENTS`. It connects, says so,
then takes commands on standard input: `phase NAME` begins a new set of figures, `end` stops the
publishers, waits for the last deliveries and prints a report as JSON.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import struct
import sys
import time
from collections import defaultdict
from typing import Final

from penstock.client import Client, Delivery, Stream, connect
from penstock.errors import CallerError, PeerError
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.herald import HERALD

TOPICS: Final = 20
SECONDS_BETWEEN: Final = 0.5
MARK: Final = b"honest-payload:"
"""Every value begins with this; an attacker who finds it in what it got has found a leak."""
LAYOUT: Final = struct.Struct(">HIQ")
SETTLE_SECONDS: Final = 10.0


def topic(number: int, protocol: Protocol) -> str | int:
    """Return the name of a topic, for herald its channel."""
    return number if protocol is HERALD else f"honest/{number}"


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclasses.dataclass(slots=True)
class Counts:
    """What one publisher sent: `accepted` is written, and acknowledged where that exists."""

    sent: int = 0
    accepted: list[int] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)


class HonestClients:
    """Half of them publish a message every half a second, half of them subscribe."""

    def __init__(self, address: str, count: int) -> None:
        self.address = address
        self.count = count
        self.clients: list[Client] = []
        self.publishers: list[tuple[Client, Counts]] = []
        self.received: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.followed: dict[int, int] = {}
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.phase = ""
        self.reconnects = 0
        self.running = True

    def new_client(self, protocol: Protocol, name: str) -> Client:
        def observe(_event: object) -> None:
            self.reconnects += self.running and bool(self.phase)

        options = {"name": name} if protocol.identity_key else {}
        return connect(self.address, protocol=protocol, on_event=observe, **options)

    async def connect(self) -> None:
        protocols = list(PROTOCOLS)
        for number in range(self.count):
            protocol = protocols[number // 2 % len(protocols)]
            client = self.new_client(protocol, f"honest-{number}")
            await client.open()
            self.clients.append(client)
            place = number // (2 * len(protocols)) % TOPICS
            if number % 2:
                self.publishers.append((client, Counts()))
            else:
                stream = await client.subscribe(topic(place, protocol), queue_max=100_000)
                self.followed[number] = place
                asyncio.create_task(self.follow(number, stream))  # noqa: RUF006

    async def follow(self, subscriber: int, stream: Stream[Delivery]) -> None:
        async for delivery in stream:
            value = bytes(delivery.value)
            if not value.startswith(MARK):
                continue
            publisher, sequence, sent_ns = LAYOUT.unpack_from(value, len(MARK))
            self.received[subscriber, publisher].append(sequence)
            self.latencies[self.phase].append((time.monotonic_ns() - sent_ns) / 1e6)

    async def publish(self, number: int) -> None:
        client, counts = self.publishers[number]
        place = topic(self.place_of(number), client.protocol)
        await asyncio.sleep(SECONDS_BETWEEN * number / len(self.publishers))
        while self.running:
            sequence = counts.sent
            counts.sent += 1
            value = MARK + LAYOUT.pack(number, sequence, time.monotonic_ns())
            try:
                await client.publish(place, value)
            except (CallerError, PeerError) as error:
                counts.failed.append(f"{client.protocol.label}: {error}")
            else:
                counts.accepted.append(sequence)
            await asyncio.sleep(SECONDS_BETWEEN)

    def place_of(self, number: int) -> int:
        return number // len(PROTOCOLS) % TOPICS

    async def run(self) -> None:
        await self.connect()
        tell("connected")
        publishers = [asyncio.create_task(self.publish(n)) for n in range(len(self.publishers))]
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
        )
        while line := (await commands.readline()).decode().strip():
            if line == "end":
                break
            self.phase = line.removeprefix("phase ")
        self.running = False
        await asyncio.gather(*publishers)
        await self.settle()
        tell(json.dumps(self.report()))
        for client in self.clients:
            with contextlib.suppress(CallerError, PeerError):
                await client.close()

    async def settle(self) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.missing() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    def missing(self) -> int:
        """Return how many accepted messages some subscriber of their topic did not get."""
        count = 0
        for subscriber, place in self.followed.items():
            for number, (_, counts) in enumerate(self.publishers):
                if self.place_of(number) == place:
                    count += len(set(counts.accepted) - set(self.received[subscriber, number]))
        return count

    def report(self) -> dict[str, object]:
        disordered = sum(
            any(after <= before for before, after in itertools.pairwise(found))
            for found in self.received.values()
        )
        latencies = {phase: sorted(found) for phase, found in self.latencies.items() if phase}
        return {
            "sent": sum(counts.sent for _, counts in self.publishers),
            "accepted": {
                number: counts.accepted for number, (_, counts) in enumerate(self.publishers)
            },
            "failed": [text for _, counts in self.publishers for text in counts.failed],
            "delivered": sum(map(len, self.received.values())),
            "missing": self.missing(),
            "disordered": disordered,
            "reconnects": self.reconnects,
            "phases": {
                phase: {
                    "deliveries": len(found),
                    "p50_ms": round(percentile(found, 0.5), 3),
                    "p99_ms": round(percentile(found, 0.99), 3),
                    "max_ms": round(found[-1], 3),
                }
                for phase, found in latencies.items()
            },
        }


if __name__ == "__main__":
    asyncio.run(HonestClients(sys.argv[1], int(sys.argv[2])).run())
