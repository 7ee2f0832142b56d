"""A log that a test commits and fails, and a broker without sockets that writes to it."""

from penstock._kernels.batch import Batch
from penstock.core.broker import Broker
from penstock.errors import LogUnavailable
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.model import Durability
from penstock.ports import Receipt, Record
from tests.support.fakes import FakeClock, RecordingLink


class FailingLog:
    """See ports.LogWriter: what it is given at once is a commit of its own, safe when a test says.

    While it is `full` it takes nothing.
    """

    log_id = 7
    partition = 0
    crowded = False

    def __init__(self, durability: Durability = Durability.FSYNC) -> None:
        self.durability = durability
        self.next_offset = 0
        self.last_commit = 0
        self.written_commit = 0
        self.durable_commit = 0
        self.failed_commit = 0
        self.full = False
        self.senders: list[str] = []
        self.records: list[Record] = []
        self.topics: list[tuple[str, bytes]] = []

    def append(self, batch: Batch, sender_name: str) -> Receipt:
        receipt = self._take(len(batch))
        self.senders.append(sender_name)
        return receipt

    def append_record(self, record: Record) -> Receipt:
        receipt = self._take(1)
        self.records.append(record)
        return receipt

    def add_topic(self, name: str, creator: bytes) -> Receipt:
        receipt = self._take(0)
        self.topics.append((name, creator))
        return receipt

    def _take(self, count: int) -> Receipt:
        if self.full:
            raise LogUnavailable("no space left on device")
        first = self.next_offset
        self.next_offset += count
        self.last_commit += 1
        return Receipt(first, self.last_commit, self.durability)


class Desk:
    """A broker over a FailingLog, and one connection to it."""

    def __init__(self, options: GatewayOptions | None = None) -> None:
        self.log = FailingLog()
        self.clock = FakeClock()
        self.broker = Broker(log=self.log, clock=self.clock)
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.options = options or GatewayOptions()
        self.link = self.connect()

    def connect(self) -> RecordingLink:
        """Another connection."""
        link = RecordingLink()
        link.handler = handler_for(self.broker, link, self.options)
        return link

    def send(self, data: bytes) -> None:
        """The connection sends `data`, all of which must be taken."""
        assert self.link.handler.received(memoryview(data)) == len(data)

    def read(self) -> bytes:
        """What the connection was sent since it was last asked."""
        return self.link.read()

    def commit(self, commits: int | None = None) -> None:
        """The next commits are safe; all that were given if `commits` is None."""
        log = self.log
        last = (
            log.last_commit
            if commits is None
            else max(log.durable_commit, log.failed_commit) + commits
        )
        log.written_commit = log.durable_commit = last
        self.broker.settle()

    def write_only(self) -> None:
        """All commits are with the system, and none further on disk."""
        self.log.written_commit = self.log.last_commit
        self.broker.settle()

    def fail(self) -> None:
        """All commits that are not safe are lost."""
        self.log.failed_commit = self.log.last_commit
        self.broker.settle()

    def move_clock(self, seconds: float) -> None:
        """Time passes."""
        self.clock.seconds += seconds
        self.broker.timers.run_due()
