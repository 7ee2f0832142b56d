"""A broker, clients of all protocols and a network between them, driven by one seed.

Three of four simulations have a log: commits are delayed or fail, slow clients are served from the
log, subscriptions start in history, herald clients reconnect and resume, and parts of the log are
damaged or removed. The fourth has no log, and publishers are paused for slow clients.

A DeliveryOracle models which messages each client must receive; every delivered message must be the
next expected one. In the end each client must have received all of them; a disconnected client, a
prefix.
"""

import random
from collections.abc import Callable

from penstock._kernels.batch import Batch
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.partitions import Position
from penstock.core.sessions import Session
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder
from penstock.ports import LogReader, LogWriter, Receipt
from penstock.replay import Ago, AtOffset, AtTime, Earliest, split_replay
from penstock.storage.memory import MemoryLog
from tests.sim.clients import CLIENTS, SimulatedClient
from tests.sim.links import SimulatedLink
from tests.sim.oracle import DeliveryOracle
from tests.support.fakes import FakeClock
from tests.support.kept_log import KeptLog, KeptRows

CHANNELS = 6


class Simulation:
    """All state of one run; the seed decides everything."""

    def __init__(self, seed: int, *, clients: int = 8, steps: int = 600) -> None:
        self.randomness = random.Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.oracle = DeliveryOracle()
        self.kept = ObservedKeptLog(self) if seed % 4 else None
        if self.kept is not None:
            self.kept.groups_max = 1 + seed % 3
        self.retains_all = self.randomness.random() < 0.5
        log = self.kept or ObservedMemoryLog(self)
        self.broker = ObservedBroker(self, log=log, reader=self.kept)
        if self.kept is not None:
            self.kept.topics = self.broker.topics
            self.kept.settle = self.broker.settle
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.clients: list[SimulatedClient] = []
        self.may_return: list[SimulatedClient] = []
        self.lost_values: set[bytes] = set()
        self.sequence = 0
        for number in range(clients):
            self.add_client(number)

    def add_client(self, number: int) -> None:
        kinds = list(CLIENTS)
        order: ByteOrder = self.randomness.choice(["little", "big"])
        echo = self.randomness.random() < 0.7
        self.connect(self.randomness.choice(kinds), number, order=order, echo=echo)

    def connect(
        self, kind: type[SimulatedClient], number: int, *, order: ByteOrder, echo: bool
    ) -> None:
        congested = self.randomness.choice([200, 5000, 10**9])
        link = SimulatedLink(self.randomness, f"c{number}", congested_bytes=congested)
        client = kind(link, self.randomness, number, order)
        client.lost_values = self.lost_values
        client.on_delivery = lambda topic, value: self.oracle.delivered(link, topic, value)
        pinned = self.randomness.random() < 0.3
        if not pinned:
            options = GatewayOptions(echo=echo)
        else:
            options = GatewayOptions(protocol=kind.protocol, order=order, echo=echo)
        link.handler = handler_for(self.broker, link, options)
        client.connect()
        self.clients.append(client)
        if client.resumes and echo:
            self.may_return.append(client)

    def reconnect(self) -> None:
        """Reconnect a disconnected client, with its old name."""
        gone = [client for client in self.may_return if client.link.gone]
        if gone:
            client = self.randomness.choice(gone)
            self.may_return.remove(client)
            self.connect(type(client), client.number, order=client.order, echo=True)

    # --- Time ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run random steps, then deliver everything that is in flight."""
        for _ in range(self.steps):
            self.step()
        for _ in range(100_000):
            if not self.busy:
                break
            for client in self.alive():
                client.link.carry()
                client.read()
            if self.kept is not None:
                self.kept.answer()
                if self.kept.pending:
                    self.kept.commit()
            if len(self.broker.slices):
                self.broker.timers.run_due()
        else:
            raise AssertionError("the simulation does not come to rest")

    @property
    def busy(self) -> bool:
        """Whether anything is in flight."""
        if self.kept is not None and (self.kept.pending or self.kept.reads):
            return True
        if len(self.broker.slices):
            return True
        return any(client.link.busy or client.link.outbound for client in self.alive())

    def alive(self) -> list[SimulatedClient]:
        return [client for client in self.clients if not client.link.gone]

    def step(self) -> None:
        alive = self.alive()
        if not alive:
            return
        client = self.randomness.choice(alive)
        action = self.randomness.random()
        if action < 0.3:
            client.link.carry()
        elif action < 0.5:
            client.read()
        elif action < 0.7 and client.ready:
            self.publish(client)
        elif action < 0.8 and client.ready:
            self.change_subscription(client)
        elif action < 0.95:
            self.use_log()
        elif action < 0.965 and len(alive) > 2:
            client.link.cut()
        elif action < 0.97 and len(self.clients) < 16:
            self.add_client(len(self.clients))
        elif action < 0.98:
            self.clock.seconds += self.randomness.random()
            self.broker.timers.run_due()
        else:
            self.reconnect()

    def use_log(self) -> None:
        """Let the log commit, fail, lose data or answer a read."""
        if self.kept is None:
            return
        action = self.randomness.random()
        if action < 0.6:
            self.kept.answer()
        elif action < 0.9:
            self.kept.commit()
        elif action < 0.95:
            self.kept.fail()
        elif action < 0.97 and self.kept.kept:
            self.kept.damage(self.randomness.choice(self.kept.kept))
        elif not self.retains_all and self.kept.kept:
            self.kept.forget(self.randomness.choice(self.kept.kept).base_offset)

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
            is_new = channel not in client.subscribed  # a start for another one is refused
            client.subscribe(channel, self.start_position() if client.replays and is_new else "")
        else:
            client.unsubscribe(channel)

    def start_position(self) -> str:
        """Return a start position in history for a subscription, or none."""
        if self.kept is None or self.randomness.random() < 0.5:
            return ""
        positions = ["@earliest", "@-1s", "@-3.5s", "@-1w", "@2023-11-14", "@2999-01-01"]
        if self.retains_all:
            positions.append(f"@#{self.randomness.randint(0, self.kept.next_offset)}")
        return self.randomness.choice(positions)

    # --- Checks -------------------------------------------------------------------------------------

    def check(self) -> int:
        """Compare what arrived with the oracle; return the number of compared deliveries."""
        assert not self.oracle.faults, (len(self.oracle.faults), self.oracle.faults[:3])
        assert not self.broker.counters.connections_failed
        for client in self.clients:
            assert client.received == client.deliveries[: len(client.received)]
        for client in self.alive():
            assert client.acknowledged == client.published, client.protocol
            assert len(client.received) == len(client.deliveries), "it has not read all"
            missing = [
                each for each in self.oracle.expected.get(client.link, []) if not each.optional
            ]
            assert not missing, (client.protocol, len(missing), missing[:3])
        for session in self.broker.sessions:
            assert not session.feeds, "it is not live again"
        return self.oracle.compared


class ObservedBroker(Broker):
    """Reports subscriptions to the oracle."""

    def __init__(self, simulation: Simulation, *, log: LogWriter, reader: LogReader | None) -> None:
        settings = BrokerSettings(out_buffer_bytes_max=1 << 30, hold_seconds_max=1e9)
        super().__init__(log=log, reader=reader, clock=simulation.clock, settings=settings)
        self._simulation = simulation

    def subscribe(
        self, session: Session, text: str, then: Callable[[], None] | None = None
    ) -> bool:
        end = self.log.next_offset
        if not super().subscribe(session, text, then):
            return False
        pattern, start = split_replay(text)
        kept = self._simulation.kept
        if start is not None and kept is not None:
            match start:
                case Earliest():
                    first = kept.horizon
                case AtOffset(offset):
                    first = offset
                case Ago(us):
                    first = kept.offset_at(self.clock.now_us() - us)
                case AtTime(us):
                    in_future = us > self.clock.now_us()
                    first = end if in_future else kept.offset_at(us)
            self._simulation.oracle.subscribed(session, pattern, first, end)
        return True

    def unsubscribe(self, session: Session, text: str) -> bool:
        self._simulation.oracle.unsubscribed(session, split_replay(text)[0])
        return super().unsubscribe(session, text)

    def keep_for_resume(
        self, session: Session, positions: dict[str, Position] | None = None
    ) -> None:
        self._simulation.oracle.disconnected(session, self.log.next_offset)
        super().keep_for_resume(session, positions)

    def resume(
        self,
        session: Session,
        pattern: str,
        position: Position,
        then: Callable[[], None] | None = None,
    ) -> bool:
        end = self.log.next_offset
        if not super().resume(session, pattern, position, then):
            return False
        if self.reader is not None:
            self._simulation.oracle.resumed(session, pattern, end)
        return True


class ObservedMemoryLog(MemoryLog):
    """Reports every batch to the oracle before it is delivered."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(log_id=1)
        self._simulation = simulation

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        receipt = super().append(batch, sender_name)
        broker = self._simulation.broker
        self._simulation.oracle.published(
            batch, broker.topics, broker.sessions, receipt.first_offset
        )
        return receipt


class ObservedKeptLog(KeptLog):
    """Reports every batch and every loss to the oracle."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        receipt = super().append(batch, sender_name)
        broker = self._simulation.broker
        self._simulation.oracle.published(
            batch, broker.topics, broker.sessions, receipt.first_offset
        )
        return receipt

    def fail(self) -> None:
        for rows in self._pending:
            for offset in range(rows.base_offset, rows.base_offset + rows.count):
                self._simulation.lost_values.add(self._simulation.oracle.rows[offset].value)
            self._lost(rows.base_offset, rows.base_offset + rows.count)
        super().fail()

    def damage(self, rows: KeptRows) -> None:
        self._lost(rows.base_offset, rows.base_offset + rows.count)
        super().damage(rows)

    def forget(self, horizon: int) -> None:
        self._lost(self.horizon, horizon)
        super().forget(horizon)

    def _lost(self, start: int, end: int) -> None:
        self._simulation.oracle.lost(start, end, self._simulation.broker.sessions)
