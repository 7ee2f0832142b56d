"""A broker, clients of all protocols and a network between them, driven by one seed.

Three worlds of four keep a log: commits come late or fail, whoever does not read is served from the
log, subscriptions ask for history, herald clients come back for what they missed, and some of it is
damaged or no longer kept. The fourth keeps none, and publishers wait for those who do not read.

The world keeps its own book of what is owed to whom, and every message must be the next that is. In
the end each client must have received all of it; a client that was cut off, a prefix.
"""

import random

from penstock._kernels.batch import Batch
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.sessions import Session
from penstock.gateway.detector import GATEWAYS, handler_for
from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder
from penstock.ports import LogReader, LogWriter, Receipt
from penstock.replay import Ago, AtOffset, AtTime, Earliest, split_replay
from penstock.storage.memory import MemoryLog
from tests.sim.book import Book
from tests.sim.clients import CLIENTS, SimulatedClient
from tests.sim.links import SimulatedLink
from tests.support.fakes import FakeClock
from tests.support.kept_log import KeptLog, KeptRows

CHANNELS = 6


class World:
    """Everything that one seed decides."""

    def __init__(self, seed: int, *, clients: int = 8, steps: int = 600) -> None:
        self.randomness = random.Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.book = Book()
        self.kept = BookKeptLog(self) if seed % 4 else None
        self.retains_all = self.randomness.random() < 0.5
        log = self.kept or BookKeepingLog(self)
        self.broker = WatchedBroker(self, log=log, reader=self.kept)
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
        kinds = [kind for kind in CLIENTS if kind.protocol in GATEWAYS]
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
        client.on_delivery = lambda topic, value: self.book.delivered(link, topic, value)
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

    def bring_back(self) -> None:
        """Let a client that was cut off connect again, under its name."""
        gone = [client for client in self.may_return if client.link.gone]
        if gone:
            client = self.randomness.choice(gone)
            self.may_return.remove(client)
            self.connect(type(client), client.number, order=client.order, echo=True)

    # --- Time ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let things happen in any order, then let everything arrive."""
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
        else:
            raise AssertionError("the world does not come to rest")

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        if self.kept is not None and (self.kept.pending or self.kept.reads):
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
            self.bring_back()

    def use_log(self) -> None:
        """Let the log do something, or go wrong."""
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
            client.subscribe(channel, self.place() if client.replays else "")
        else:
            client.unsubscribe(channel)

    def place(self) -> str:
        """A place in history that a subscription may start from, or none."""
        if self.kept is None or self.randomness.random() < 0.5:
            return ""
        places = ["@earliest", "@-1s", "@-3.5s", "@-1w", "@2023-11-14", "@2999-01-01"]
        if self.retains_all:
            places.append(f"@#{self.randomness.randint(0, self.kept.next_offset)}")
        return self.randomness.choice(places)

    # --- The verdict --------------------------------------------------------------------------------

    def check(self) -> int:
        """Compare what arrived with the book; return how many deliveries were compared."""
        assert not self.book.faults, (len(self.book.faults), self.book.faults[:3])
        assert not self.broker.counters.connections_failed
        for client in self.clients:
            assert client.received == client.deliveries[: len(client.received)]
        for client in self.alive():
            assert client.acknowledged == client.published, client.protocol
            assert len(client.received) == len(client.deliveries), "it has not read all"
            owed = [each for each in self.book.owed.get(client.link, []) if not each.optional]
            assert not owed, (client.protocol, len(owed), owed[:3])
        for session in self.broker.sessions:
            assert session.feed is None, "it is not live again"
        return self.book.compared


class WatchedBroker(Broker):
    """Tells the book what clients ask for."""

    def __init__(self, world: World, *, log: LogWriter, reader: LogReader | None) -> None:
        settings = BrokerSettings(out_buffer_bytes_max=1 << 30, hold_seconds_max=1e9)
        super().__init__(log=log, reader=reader, clock=world.clock, settings=settings)
        self._world = world

    def subscribe(self, session: Session, text: str) -> bool:
        end = self.log.next_offset
        if not super().subscribe(session, text):
            return False
        pattern, start = split_replay(text)
        kept = self._world.kept
        if start is not None and kept is not None:
            match start:
                case Earliest():
                    first = kept.horizon
                case AtOffset(offset):
                    first = offset
                case Ago(us):
                    first = kept.offset_at(self.clock.now_us() - us)
                case AtTime(us):
                    to_come = us > self.clock.now_us()
                    first = end if to_come else kept.offset_at(us)
            self._world.book.subscribed(session, pattern, first, end)
        return True

    def unsubscribe(self, session: Session, text: str) -> bool:
        self._world.book.unsubscribed(session, split_replay(text)[0])
        return super().unsubscribe(session, text)

    def keep_for_resume(self, session: Session) -> None:
        self._world.book.cut_off(session, self.log.next_offset)
        super().keep_for_resume(session)

    def resume(self, session: Session, pattern: str, offset: int) -> bool:
        end = self.log.next_offset
        if not super().resume(session, pattern, offset):
            return False
        if self.reader is not None:
            self._world.book.resumed(session, pattern, end)
        return True


class BookKeepingLog(MemoryLog):
    """Tells the book about every batch before it is delivered."""

    def __init__(self, world: World) -> None:
        super().__init__(log_id=1)
        self._world = world

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        receipt = super().append(batch, sender_name)
        broker = self._world.broker
        self._world.book.took(batch, broker.topics, broker.sessions, receipt.first_offset)
        return receipt


class BookKeptLog(KeptLog):
    """Tells the book about every batch, and what is lost."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        receipt = super().append(batch, sender_name)
        broker = self._world.broker
        self._world.book.took(batch, broker.topics, broker.sessions, receipt.first_offset)
        return receipt

    def fail(self) -> None:
        for rows in self._pending:
            for offset in range(rows.base_offset, rows.base_offset + rows.count):
                self._world.lost_values.add(self._world.book.rows[offset].value)
            self._lost(rows.base_offset, rows.base_offset + rows.count)
        super().fail()

    def damage(self, rows: KeptRows) -> None:
        self._lost(rows.base_offset, rows.base_offset + rows.count)
        super().damage(rows)

    def forget(self, horizon: int) -> None:
        self._lost(self.horizon, horizon)
        super().forget(horizon)

    def _lost(self, start: int, end: int) -> None:
        self._world.book.lost(start, end, self._world.broker.sessions)
