"""A broker with consumer groups on a log in memory: a test commits, reads, answers and waits."""

from collections.abc import Callable
from typing import Any

from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels.batch import Batch
from penstock.core.access import ANYONE
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.groups import Groups, GroupSettings
from penstock.core.sessions import Session
from penstock.memory import MemoryBudget
from penstock.ports import GroupState, Receipt, Record
from penstock.protocols import PROTOCOLS
from penstock.wire import herald, lamamq
from penstock.wire.decoder import Decoder
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog
from tests.support.publishes import publish

LAMAMQ = Encoding(PROTOCOLS["lamamq"], "big")
HERALD = Encoding(PROTOCOLS["herald"], "little")


class Store:
    """See ports.GroupStore: `error` fails the next calls; saves that are held end later."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self.states: dict[str, GroupState] = {}
        self.error: Exception | None = None
        self.saves = 0
        self.is_holding = False
        self._held: list[Callable[[], None]] = []

    def load(self, group: str, then: Callable[[GroupState | Exception | None], None]) -> None:
        then(self.error or self.states.get(group))

    def save(self, state: GroupState, then: Callable[[Exception | None], None]) -> None:
        self.saves += 1

        def save() -> None:
            if self.error is None:
                self.states[state.group] = state
            then(self.error)

        if self.is_holding:
            self._held.append(save)
        else:
            save()

    def forget(self, group: str, then: Callable[[Exception | None], None]) -> None:
        self.states.pop(group, None)
        then(self.error)

    def answer(self) -> None:
        """Let the saves that were held come to their end."""
        held, self._held = self._held, []
        for save in held:
            save()


class RecordedLog(KeptLog):
    """A log that keeps the records which the broker appends."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []

    def append_record(self, record: Record) -> Receipt:
        receipt = super().append_record(record)
        self.records.append(record)
        return receipt


class AcknowledgingLink(RecordingLink):
    """See ports.AcknowledgedLink: a test says when the client's system has taken all bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks = self.written
        self.written = 0  # type: ignore[assignment]  # a number here, as the port says
        self.taken = 0
        self.asked = 0

    def write(self, data: bytes) -> None:
        self.chunks.append(data)
        self.written += len(data)  # type: ignore[operator]

    def read(self) -> bytes:
        data = b"".join(self.chunks)
        self.chunks.clear()
        return data

    def acknowledged(self) -> int:
        self.asked += 1
        return self.taken


class GroupClient:
    """A session, and the other end of its link."""

    def __init__(self, desk: "GroupDesk", session: Session) -> None:
        self.desk = desk
        self.session = session
        self.link: RecordingLink = session.link  # type: ignore[assignment]
        self.ids: dict[str, int] = {}
        """Ids on the wire of the messages that were read, by value."""
        self._decoder: Decoder[Any]
        if session.encoding is LAMAMQ:
            self._decoder = lamamq.ClientDecoder()
            self._decoder.feed(lamamq.encode(lamamq.VERSIONS_OFFERED))
        else:
            self._decoder = herald.Decoder()

    def read(self) -> str:
        """Return the values that came since the last call, as words."""
        self._decoder.feed(self.link.read())
        values = []
        for packet in self._decoder:
            match packet:
                case lamamq.Forward(identifier, message):
                    self.ids[message.payload.decode()] = identifier & 0x7FFF_FFFF
                    values.append(message.payload)
                case herald.Message(message=value):
                    values.append(value)
        return b" ".join(values).decode()

    def answer(self, text: str, failure: str | None = None) -> None:
        """Answer messages that were read; each is one that the broker expects."""
        for word in text.split():
            identifier = self.ids[word]
            assert self.desk.groups.acknowledgments.answered(self.session, identifier, failure)
        self.desk.run()

    def take(self) -> None:
        """Let the system of the client acknowledge all bytes."""
        assert isinstance(self.link, AcknowledgingLink)
        self.link.taken = self.link.written  # type: ignore[assignment]

    def drain(self) -> None:
        self.link.congested = False
        self.desk.broker.drained(self.session)
        self.desk.run()

    def leave(self, text: str = "channel/+@group=g") -> None:
        """Leave a group, as a client that unsubscribes."""
        assert self.desk.broker.unsubscribe(self.session, text)
        self.desk.run()

    def close(self) -> None:
        """Lose the connection."""
        self.desk.broker.close(self.session)
        self.desk.run()

    @property
    def has_left(self) -> bool:
        return not self.session.memberships


class GroupDesk:
    """A broker with groups, a log, a store and a clock that a test moves."""

    def __init__(
        self,
        *,
        store: Store | None = None,
        log: RecordedLog | None = None,
        memory: MemoryBudget | None = None,
        **settings: float,
    ) -> None:
        self._settings = settings
        self.log = log or RecordedLog()
        self.other: KeptLog | None = None  # the partition of another node
        self.clock = FakeClock()
        self.store = store or Store()
        self.broker = Broker(
            log=self.log,
            reader=self.log,
            group_store=self.store,
            clock=self.clock,
            memory=memory,
            settings=BrokerSettings(groups=GroupSettings(**settings)),  # type: ignore[arg-type]
        )
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.publisher = self.broker.open(HERALD, RecordingLink(), principal=ANYONE)

    def restarted(self) -> "GroupDesk":
        """Return another broker with the same log and store; this one was killed."""
        self.log.reads.clear()
        return GroupDesk(store=self.store, log=self.log, **self._settings)

    @property
    def groups(self) -> Groups:
        assert self.broker.groups is not None
        return self.broker.groups

    @property
    def unacked(self) -> int:
        """Messages of group g that were given out and are not done."""
        figures = self.groups.figures("g")
        assert figures is not None
        return figures.unacknowledged

    @property
    def position(self) -> int:
        """The first offset that is not done in group g."""
        figures = self.groups.figures("g")
        assert figures is not None
        return figures.positions[0]

    def open(self, encoding: Encoding = LAMAMQ, *, acknowledges: bool = True) -> GroupClient:
        """Open a session; the link of a protocol without answers tells what was acknowledged."""
        is_told = acknowledges and not encoding.protocol.carries.group_answers
        link = AcknowledgingLink() if is_told else RecordingLink()
        return GroupClient(self, self.broker.open(encoding, link, principal=ANYONE))

    def join(
        self,
        text: str = "channel/+@group=g",
        encoding: Encoding = LAMAMQ,
        *,
        runs: bool = True,
        acknowledges: bool = True,
    ) -> GroupClient:
        client = self.open(encoding, acknowledges=acknowledges)
        name = text.partition("@group=")[2].partition(",")[0]
        self.groups.open(name, lambda: None)
        self.broker.subscribe(client.session, text)
        if runs:
            self.run()
        return client

    def second_partition(self) -> KeptLog:
        """Find the partition of another node."""
        assert self.broker.following is not None
        self.other = KeptLog(self.broker.topics)
        self.broker.following.partition_found(1, self.other, 0)
        return self.other

    def send(self, text: str, *, channel: int = 1, commits: bool = True) -> None:
        """Publish one message for each word, and commit them, as one row group."""
        self.send_values(*text.encode().split(), channel=channel, commits=commits)

    def send_values(self, *values: bytes, channel: int = 1, commits: bool = True) -> None:
        self._scan(self.broker.batch, [(channel, value) for value in values])
        self.broker.publish_batch(self.publisher, self.broker.batch)
        self.broker.batch.clear()
        if commits:
            self.log.commit()
            self.run()

    def send_mixed(self, text: str) -> None:
        """Publish words of the form `channel:value` in one row group."""
        pairs = [each.split(b":") for each in text.encode().split()]
        self._scan(self.broker.batch, [(int(channel), value) for channel, value in pairs])
        self.broker.publish_batch(self.publisher, self.broker.batch)
        self.broker.batch.clear()
        self.log.commit()
        self.run()

    def send_from_lamamq(self, *values: bytes, topic: str = "channel/1") -> None:
        """Publish and commit messages of LamaMQ, whose values may be long."""
        frames = (publish(LAMAMQ.protocol, "big", topic=topic, value=each) for each in values)
        self.send_lamamq_frames(*frames)

    def send_lamamq_frames(self, *frames: bytes) -> None:
        session = self.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
        batch, topics = self.broker.batch, self.broker.topics
        lamamq_kernel.scan(b"".join(frames), 0, batch, topics, session.sender, order="big")
        self.broker.publish_batch(session, batch)
        batch.clear()
        self.log.commit()
        self.run()

    def send_elsewhere(self, text: str, *, channel: int = 1) -> None:
        """Let the other node publish and commit messages, which this one reads."""
        assert self.other is not None
        assert self.broker.following is not None
        batch = Batch()
        self._scan(batch, [(channel, value) for value in text.encode().split()])
        self.other.append(batch, "elsewhere")
        self.other.commit()
        self.broker.following.messages_read(1, self.other.kept[-1])
        self.run()

    def _scan(self, batch: Batch, messages: list[tuple[int, bytes]]) -> None:
        frames = (publish(HERALD.protocol, "little", channel=c, value=v) for c, v in messages)
        sender = self.publisher.sender
        topics = self.broker.topics
        herald_kernel.scan(b"".join(frames), 0, batch, topics, sender, order="little")
        assert len(batch) == len(messages)

    def run(self) -> None:
        """Let reads and what is due come to their end."""
        for _ in range(1000):
            self.broker.timers.run_due()
            logs = [each for each in (self.log, self.other) if each is not None and each.reads]
            if not logs:
                return
            for each in logs:
                each.answer_all()
        raise AssertionError("the groups do not come to rest")

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.run()
