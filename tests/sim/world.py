"""A broker, clients of all protocols and a network between them, driven by one seed.

The world keeps its own book: every row that the broker takes, and who was subscribed at that moment
by the broker's own account. In the end each client must have received exactly the rows of its time,
in order, once; a client that was cut off, a prefix of them.
"""

import random

from penstock._kernels.batch import Batch
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.sessions import Session
from penstock.gateway.front_door import GATEWAYS, FrontDoor
from penstock.gateway.options import GatewayOptions
from penstock.log.memory import MemoryLog
from penstock.model import ByteOrder, Protocol
from penstock.patterns import compile_pattern
from tests.sim.clients import CLIENTS, SimulatedClient
from tests.sim.links import SimulatedLink
from tests.support.fakes import FakeClock

CHANNELS = 6


class World:
    """Everything that one seed decides."""

    def __init__(self, seed: int, *, clients: int = 8, steps: int = 600) -> None:
        self.randomness = random.Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.broker = Broker(
            log=BookKeepingLog(self),
            clock=self.clock,
            settings=BrokerSettings(out_buffer_bytes_max=1 << 30, hold_seconds_max=1e9),
        )
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.expected: dict[Session, list[tuple[str, bytes]]] = {}
        self.clients: list[SimulatedClient] = []
        self.sessions: dict[SimulatedClient, Session] = {}
        self.sequence = 0
        for number in range(clients):
            self.add_client(number)

    def add_client(self, number: int) -> None:
        kinds = [kind for kind in CLIENTS if kind.protocol in GATEWAYS]
        kind = self.randomness.choice(kinds)
        order: ByteOrder = self.randomness.choice(["little", "big"])
        congested = self.randomness.choice([200, 5000, 10**9])
        link = SimulatedLink(self.randomness, f"c{number}", congested_bytes=congested)
        client = kind(link, self.randomness, number, order)
        pinned = self.randomness.random() < 0.3
        if not pinned:
            options = GatewayOptions()
        else:
            options = GatewayOptions(protocol=kind.protocol, order=order)
        link.handler = FrontDoor(self.broker, link, options)
        client.connect()
        self.clients.append(client)

    # --- The book -----------------------------------------------------------------------------------

    def took(self, batch: Batch) -> None:
        """Note who must receive each row of `batch`: those subscribed now, by the broker's list."""
        for row in range(len(batch)):
            topic = self.broker.topics.name(batch.topic_id(row))
            for session in self.broker.sessions:
                if any(matches(pattern, topic) for pattern in session.subscriptions):
                    self.expected.setdefault(session, []).append((topic, batch.value(row)))

    # --- Time ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let things happen in any order, then let everything arrive."""
        for _ in range(self.steps):
            self.step()
        for _ in range(100_000):
            if not any(client.link.busy or client.link.outbound for client in self.alive()):
                break
            for client in self.alive():
                client.link.carry()
                client.read()
        else:
            raise AssertionError("the world does not come to rest")

    def alive(self) -> list[SimulatedClient]:
        return [client for client in self.clients if not client.link.gone]

    def step(self) -> None:
        alive = self.alive()
        if not alive:
            return
        client = self.randomness.choice(alive)
        action = self.randomness.random()
        if action < 0.35:
            client.link.carry()
        elif action < 0.6:
            client.read()
        elif action < 0.85 and client.ready:
            self.publish(client)
        elif action < 0.95 and client.ready:
            self.change_subscription(client)
        elif action < 0.96 and len(alive) > 2:
            client.link.cut()
        elif action < 0.97 and len(self.clients) < 16:
            self.add_client(len(self.clients))
        elif action < 0.98:
            self.clock.seconds += self.randomness.random()
            self.broker.timers.run_due()

    def publish(self, client: SimulatedClient) -> None:
        for _ in range(self.randomness.choice([1, 1, 2, 10, 60])):
            self.sequence += 1
            size = self.randomness.choice([0, 0, 3, 90, 700])
            value = self.sequence.to_bytes(4, "big") + bytes(size)
            client.publish(self.randomness.randrange(CHANNELS), value)

    def change_subscription(self, client: SimulatedClient) -> None:
        channel: int | None = self.randomness.randrange(CHANNELS)
        if client.wildcards and self.randomness.random() < 0.2:
            channel = None
        if self.randomness.random() < 0.65:
            client.subscribe(channel)
        else:
            client.unsubscribe(channel)

    # --- The verdict --------------------------------------------------------------------------------

    def check(self) -> int:
        """Compare what arrived with the book; return how many deliveries were compared."""
        by_link = {session.link: rows for session, rows in self.expected.items()}
        compared = 0
        for client in self.clients:
            expected = by_link.get(client.link, [])
            received = client.received
            if client.protocol is Protocol.RHEOS1:
                expected_values = [(None, value) for _, value in expected]
            else:
                expected_values = list(expected)  # type: ignore[arg-type]
            if client.link.gone:
                expected_values = expected_values[: len(received)]
            else:
                assert client.acknowledged == client.published, client.protocol
            assert received == expected_values, (client.protocol, len(received))
            compared += len(received)
        return compared


class BookKeepingLog(MemoryLog):
    """Tells the world about every batch before it is delivered."""

    def __init__(self, world: World) -> None:
        super().__init__(log_id=1)
        self._world = world

    def append(self, batch: Batch) -> int:
        self._world.took(batch)
        return super().append(batch)


def matches(pattern: str, topic: str) -> bool:
    expression = compile_pattern(pattern)
    return pattern == topic if expression is None else bool(expression.fullmatch(topic))
