"""A consumer group on a simulated log, driven by one seed.

Members of LamaMQ and fleximq answer messages, those of herald and Rheos acknowledge bytes. They join, leave, stall, fail
messages and are cut off; commits fail; the broker is killed and starts again with the state that
was stored last. With every third seed the log has a second partition, which another node writes: a
message is then known by its place. Time passes only where the seed says so.

Checked while it runs: no member gets a message that the stored state had as done, and in an ordered
group first deliveries of a topic are in order. In the end every message was acknowledged, once if
the broker was not killed, or is in the dead letters, if it failed as often as it may: members
refused it, or were cut off or silent when it was their first one.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock._kernels import herald as herald_kernel
from penstock._kernels.batch import Batch
from penstock.core.access import ANYONE
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.groups import GroupSettings
from penstock.core.groups.places import offset_of, partition_of, place_of
from penstock.core.sessions import Session
from penstock.model import topic_name_from_binary
from penstock.ports import GroupState, Receipt, Record
from penstock.protocols import PROTOCOLS
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Decoder
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog
from tests.support.publishes import publish

TOPICS = 4
NEVER = 1e9
GROUP = "g"
LAMAMQ = Encoding(PROTOCOLS["lamamq"], "big")
FLEXIMQ = Encoding(PROTOCOLS["fleximq"], "big")
HERALD = Encoding(PROTOCOLS["herald"], "little")
RHEOS1 = Encoding(PROTOCOLS["rheos1"], "big")
RHEOS2 = Encoding(PROTOCOLS["rheos2"], "big")
MEMBERS = (LAMAMQ, LAMAMQ, FLEXIMQ, FLEXIMQ, HERALD, RHEOS1, RHEOS2)
DECODERS: dict[Encoding, Callable[[], Decoder[Any]]] = {
    LAMAMQ: lamamq.ClientDecoder,
    FLEXIMQ: fleximq.ClientDecoder,
    HERALD: herald.Decoder,
    RHEOS1: rheos1.ClientDecoder,
    RHEOS2: rheos2.ClientDecoder,
}


class AcknowledgingLink(RecordingLink):
    """See ports.AcknowledgedLink: the client's system acknowledges when the client says so."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0  # type: ignore[assignment]  # a number here, as the port says
        self.taken = 0
        self.on_write: Callable[[bytes], None] = lambda _: None

    def write(self, data: bytes) -> None:
        self.on_write(data)
        self.written += len(data)  # type: ignore[operator]

    def acknowledged(self) -> int:
        return self.taken


class Store:
    """See ports.GroupStore: saves end when the simulation says so."""

    is_shared = False

    def __init__(self) -> None:
        self.state: GroupState | None = None
        self._pending: list[Callable[[], None]] = []

    def load(self, group: str, then: Callable[[GroupState | Exception | None], None]) -> None:
        assert group == GROUP
        then(self.state)

    def save(self, state: GroupState, then: Callable[[Exception | None], None]) -> None:
        def save() -> None:
            self.state = state
            then(None)

        self._pending.append(save)

    def forget(self, group: str, then: Callable[[Exception | None], None]) -> None:
        raise AssertionError(group, then)

    def answer(self) -> None:
        pending, self._pending = self._pending, []
        for save in pending:
            save()

    def crash(self) -> None:
        self._pending.clear()


class DeadLetterLog(KeptLog):
    """A log that notes the offsets of dead letters; they are durable with the next commit."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: list[int] = []

    def append_record(self, record: Record) -> Receipt:
        assert record.topic == f"dead/{GROUP}"
        headers = dict(record.headers)
        partition = int(headers["penstock-dead-partition"])
        self.dead.append(place_of(partition, int(headers["penstock-dead-offset"])))
        return super().append_record(record)


class GroupMember:
    """A client in the group.

    `arrived` are the messages that it has not read, `held` those that it has not answered.
    """

    def __init__(self, simulation: "GroupSimulation", session: Session) -> None:
        self.simulation = simulation
        self.session = session
        self.answers = session.encoding in {LAMAMQ, FLEXIMQ}
        self.link: AcknowledgingLink = session.link  # type: ignore[assignment]
        self.link.on_write = self._written
        self.arrived: list[tuple[int, int]] = []  # the id on the wire, and the offset
        self.held: list[tuple[int, int]] = []
        self.passed: set[int] = set()  # that it had before some that it answered
        self.delivered = 0
        self.decoder = DECODERS[session.encoding]()
        if session.encoding is LAMAMQ:
            self.decoder.feed(lamamq.encode(lamamq.VERSIONS_OFFERED))

    def _written(self, data: bytes) -> None:
        self.decoder.feed(data)
        for packet in self.decoder:
            found = self._delivery(packet)
            if found is not None:
                identifier, topic, offset = found
                self.simulation.delivered(topic, offset)
                self.arrived.append((identifier, offset))
        self.simulation.check_owner(self)

    def _delivery(self, packet: Any) -> tuple[int, str | None, int] | None:
        """Return the id on the wire, the topic and the offset of a delivery.

        Those of fleximq are numbered; Rheos v1 has no topics.
        """
        match packet:
            case lamamq.Forward(identifier, message):
                return identifier & 0x7FFF_FFFF, message.routing_key, int(message.payload)
            case herald.Message(channel=channel, message=value):
                return 0, f"channel/{channel}", int(value)
            case fleximq.Message(type=fleximq.MessageType.PUB):
                self.delivered += 1
                value = fleximq.raw_value(packet.payload)
                return self.delivered, packet.header.topic, int(value)
            case rheos1.Response():
                return 0, None, int(packet.payload)
            case rheos2.Event():
                return 0, topic_name_from_binary(packet.name), int(packet.data)
            case _:
                return None

    def has(self, identifier: int) -> bool:
        """Return whether the broker still expects the answer to a message."""
        if self.session.encoding is FLEXIMQ:
            return self.session.memberships[GROUP].by_number(identifier) is not None
        groups = self.simulation.broker.groups
        assert groups is not None
        return groups.acknowledgments.expects(self.session, identifier)

    @property
    def unacknowledged(self) -> list[int]:
        """The messages that it has, in the order of their delivery."""
        if not self.answers:
            return [offset for _, offset in self.arrived]
        return [offset for identifier, offset in self.held + self.arrived if self.has(identifier)]

    @property
    def suspects(self) -> list[int]:
        """The messages that fail if it is silent: its first one, and those that it passed over."""
        found = self.unacknowledged
        if not self.answers:
            return found
        passed = [offset for offset in found if offset in self.passed]
        return [*passed, *found[:1], *[each for each in found if each not in self.passed][:1]]

    def read(self) -> None:
        """Read what arrived; the system of a client without answers acknowledges it."""
        arrived, self.arrived = self.arrived, []
        if self.answers:
            self.held += arrived
        else:
            self.link.taken = self.link.written  # type: ignore[assignment]
            self.simulation.received += [offset for _, offset in arrived]

    def answer(self, *, failure: str | None) -> None:
        """Answer one of the messages that it has, in any order, or a run of them."""
        if not self.answers or not self.held:
            return
        first = self.simulation.randomness.randrange(len(self.held))
        run = [self.held[first]]
        if failure is None and self.simulation.randomness.random() < 0.5:
            for each in self.held[first + 1 :]:
                if each[0] != run[-1][0] + 1:
                    break
                run.append(each)
        taken = self._answered(run[0][0], len(run), failure)
        for _, offset in run[:taken]:
            if failure is None:
                self.simulation.acknowledged[offset] += 1
            else:
                self.simulation.failures[offset] += 1
        self.passed.update(offset for _, offset in self.held[:first])
        # The broker takes no answer to a message that it took back.
        del self.held[first : first + max(1, taken)]

    def _answered(self, first: int, count: int, failure: str | None) -> int:
        """Answer messages that follow each other; return how many the group took, from the first."""
        groups = self.simulation.broker.groups
        assert groups is not None
        if self.session.encoding is FLEXIMQ:
            member = self.session.memberships[GROUP]
            for taken in range(count):
                if member.by_number(first + taken) is None:
                    count = taken
                    break
            if not count:
                assert not groups.acknowledgments.acknowledge(
                    member, range(first, first + 1), failure
                )
                return 0
            taken = groups.acknowledgments.acknowledge(member, range(first, first + count), failure)
            assert taken == count
            return taken
        if failure is None and (
            taken := groups.acknowledgments.answered_run(self.session, first, count)
        ):
            return taken
        return int(groups.acknowledgments.answered(self.session, first, failure))


class GroupSimulation:
    """All state of one run; the seed decides everything."""

    def __init__(self, seed: int, *, steps: int = 250) -> None:
        self.randomness = random.Random(seed)
        self.steps = steps
        self.is_ordered = bool(seed % 2)
        self.log = DeadLetterLog()
        self.other = KeptLog() if seed % 3 == 0 else None  # the partition of another node
        self.clock = FakeClock()
        self.store = Store()
        self.settings = GroupSettings(
            ack_wait_seconds=self.randomness.choice([2.0, NEVER]),
            deliveries_max=self.randomness.choice([2, 3, 100]),
            unacked_max=self.randomness.choice([1, 3, 40, 10_000]),
        )
        self.published: dict[int, str] = {}
        self.acknowledged: Counter[int] = Counter()  # answers that the group took
        self.failures: Counter[int] = Counter()  # refused, or the first one of a lost member
        self.late: set[int] = set()  # that may have been the first one of a silent member
        self.received: list[int] = []  # by members whose receiving acknowledges
        self.seen: set[int] = set()  # offsets that were delivered
        self.last_of_topic: dict[
            tuple[int, str], int
        ] = {}  # of first deliveries, in an ordered group
        self.done: set[int] = set()  # in the state with which the broker started
        self.restarts = 0
        self.start()

    # --- The broker -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a broker with the log and the stored state; the other one is gone."""
        self.store.crash()
        for log in self.logs:
            log.reads.clear()
        self.broker = Broker(
            log=self.log,
            reader=self.log,
            group_store=self.store,
            clock=self.clock,
            settings=BrokerSettings(groups=self.settings),
        )
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle
        if self.other is not None:
            assert self.broker.following is not None
            self.other.topics = self.broker.topics
            self.broker.following.partition_found(1, self.other, self.other.end)
        for channel in range(256):
            self.broker.topics.bind_channel(channel, f"channel/{channel}")
        self.publisher = self.broker.open(HERALD, RecordingLink(), principal=ANYONE)
        self.members: list[GroupMember] = []
        self.done = self._stored_as_done()

    @property
    def logs(self) -> list[KeptLog]:
        return [self.log] if self.other is None else [self.log, self.other]

    def _stored_as_done(self) -> set[int]:
        state = self.store.state
        if state is None or state.progress is None:
            return set()
        pending = {
            offset
            for run in state.progress.pending
            for offset in range(run.first, run.first + run.size)
        }
        ends = state.progress.partitions or {0: state.progress.next}
        return {
            place
            for place in self.published
            if offset_of(place) < ends.get(partition_of(place), 0) and place not in pending
        }

    def kill(self) -> None:
        """Kill the broker: what is not committed or stored is lost."""
        self.restarts += 1
        if self.log.pending:
            self._forget_failed()
            self.log.settle = lambda: None
            self.log.fail()
        self.start()
        self.join()

    def _forget_failed(self) -> None:
        for offset in range(self.log.end, self.log.next_offset):  # places of partition 0
            self.published.pop(offset, None)

    # --- Steps ------------------------------------------------------------------------------------

    def join(self) -> None:
        encoding = self.randomness.choice(MEMBERS)
        session = self.broker.open(encoding, AcknowledgingLink(), principal=ANYONE)
        groups = self.broker.groups
        assert groups is not None
        suffix = ",earliest" + ",ordered=topic" * self.is_ordered
        groups.open(GROUP, lambda: None)
        self.members.append(GroupMember(self, session))
        self.broker.subscribe(session, f"channel/+@group={GROUP}{suffix}")

    def leave(self, member: GroupMember) -> None:
        self.members.remove(member)
        if self.randomness.random() < 0.5:
            assert self.broker.unsubscribe(member.session, f"channel/+@group={GROUP}")
        elif member.answers:
            self.failures.update(member.unacknowledged[:1])
        self.broker.close(member.session)

    def send(self) -> None:
        count = self.randomness.choice([1, 2, 10, 50])
        batch = self.broker.batch
        data = bytearray()
        first = self.log.next_offset
        for offset in range(first, first + count):
            channel = self.randomness.randrange(TOPICS)
            self.published[offset] = f"channel/{channel}"
            data += publish(HERALD.protocol, "little", channel=channel, value=b"%d" % offset)
        sender = self.publisher.sender
        herald_kernel.scan(bytes(data), 0, batch, self.broker.topics, sender, order="little")
        assert self.broker.publish_batch(self.publisher, batch).first_offset == first
        batch.clear()

    def send_elsewhere(self) -> None:
        """Let another node publish and commit messages, which this one reads."""
        assert self.other is not None
        assert self.broker.following is not None
        data = bytearray()
        first = self.other.next_offset
        for offset in range(first, first + self.randomness.choice([1, 2, 10, 50])):
            place, channel = place_of(1, offset), self.randomness.randrange(TOPICS)
            self.published[place] = f"channel/{channel}"
            data += publish(HERALD.protocol, "little", channel=channel, value=b"%d" % place)
        batch = Batch()
        sender = self.publisher.sender
        herald_kernel.scan(bytes(data), 0, batch, self.broker.topics, sender, order="little")
        self.other.append(batch, "elsewhere")
        self.other.commit()
        self.broker.following.messages_read(1, self.other.kept[-1])

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        if self.settings.ack_wait_seconds < NEVER:
            for member in self.members:
                self.late.update(member.suspects)
        self.broker.timers.run_due()

    def step(self) -> None:
        action = self.randomness.random()
        member = self.randomness.choice(self.members) if self.members else None
        if action < 0.06 and self.other is not None:
            self.send_elsewhere()
        elif action < 0.15:
            self.send()
        elif action < 0.3:
            self.log.commit()
        elif action < 0.33:
            self._forget_failed()
            self.log.fail()
        elif action < 0.5:
            for log in self.logs:
                log.answer(self.randomness.randint(1, 3))
        elif action < 0.6:
            self.pass_time(self.randomness.choice([0.01, 0.3, 1.2, 1.2, 3.0]))
        elif action < 0.63:
            self.store.answer()
        elif action < 0.66 and len(self.members) < 5:
            self.join()
        elif action < 0.68 and member is not None:
            self.leave(member)
        elif action < 0.69:
            self.kill()
        elif action < 0.8 and member is not None:
            member.read()
        elif member is not None:
            failure = "no" if self.randomness.random() < 0.1 else None
            member.answer(failure=failure)

    def run(self) -> None:
        """Run random steps, then let members process everything."""
        self.join()
        for _ in range(self.steps):
            self.step()
        if not self.members:
            self.join()
        for _ in range(20_000):
            if self.is_done:
                return
            self.log.commit()
            while any(log.reads for log in self.logs):
                for log in self.logs:
                    log.answer_all()
            self.store.answer()
            for member in self.members:
                member.read()
                while member.held:
                    member.answer(failure=None)
            self.pass_time(0.5)
        raise AssertionError("the group does not come to rest")

    @property
    def is_done(self) -> bool:
        groups = self.broker.groups
        assert groups is not None
        figures = groups.figures(GROUP)
        return (
            figures is not None
            and not figures.unacknowledged
            and all(
                offset_of(place) < figures.positions[partition_of(place)]
                for place in self.published
            )
            and not self.log.pending
        )

    # --- Checks -----------------------------------------------------------------------------------

    def delivered(self, topic: str | None, offset: int) -> None:
        if topic is None:
            topic = self.published.get(offset, "")
        assert self.published.get(offset) == topic, f"{offset} was never published to {topic}"
        assert offset not in self.done, f"{offset} was done before the broker started"
        if offset not in self.seen:
            self.seen.add(offset)
            if self.is_ordered:
                key = partition_of(offset), topic
                last = self.last_of_topic.get(key, -1)
                assert offset > last, f"{offset} of {topic} came after {last}"
                self.last_of_topic[key] = offset

    def check_owner(self, member: GroupMember) -> None:
        """Check that no other member has messages of the topics of a member's messages."""
        if not self.is_ordered:
            return
        ledger = member.session.memberships[GROUP].group.ledger
        topics: tuple[set[str], set[str]] = set(), set()
        for lease in ledger._leases:
            of_others = lease.member is not member.session.memberships[GROUP]
            topics[of_others].update(self.published[offset] for offset in lease.offsets())
        both = topics[False] & topics[True]
        assert not both, f"two members have messages of {both}"

    def check(self) -> int:
        """Return the number of messages that were processed."""
        dead = set(self.log.dead)
        processed = set(self.acknowledged) | set(self.received) | dead
        missing = self.published.keys() - processed
        is_late = self.settings.ack_wait_seconds < NEVER
        for place in dead:
            if self.failures[place] < self.settings.deliveries_max:
                assert is_late, f"{place} is dead, but failed {self.failures[place]} times"
                assert place in self.late, f"{place} is dead, but no member was late with it"
        assert not missing, f"{len(missing)} are neither done nor dead: {sorted(missing)[:5]}"
        if not self.restarts:
            twice = [offset for offset, count in self.acknowledged.items() if count > 1]
            assert not twice, f"acknowledged twice: {twice[:5]}"
            refused = {
                place for place, n in self.failures.items() if n >= self.settings.deliveries_max
            }
            assert refused <= dead, f"failed too often: {sorted(refused - dead)[:5]}"
            both = dead & set(self.acknowledged)
            assert not both, f"acknowledged, and in the dead letters: {sorted(both)[:5]}"
        return len(self.published)
