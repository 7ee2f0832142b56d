"""Answers wait for the disk, keep their order, turn into refusals, and are bounded."""

import pytest

from penstock._kernels import herald as herald_kernel
from penstock.core.access import ANYONE
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.errors import LogUnavailable
from penstock.limits import ANSWERS_WAITING_BYTES_MAX
from penstock.model import Durability, Kind
from penstock.ports import Receipt, Record
from penstock.protocols.herald import HERALD
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog
from tests.support.publishes import publish


class Desk:
    """A broker on a log that a test commits, and one client."""

    def __init__(self, durability: Durability = Durability.FSYNC) -> None:
        self.log = KeptLog(durability=durability)
        self.broker = Broker(log=self.log, clock=FakeClock())
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle
        self.broker.topics.bind_channel(1, "channel/1")
        self.session = self.join()
        self.link: RecordingLink = self.session.link  # type: ignore[assignment]

    def join(self) -> Session:
        encoding = Encoding(HERALD, "little")
        return self.broker.open(encoding, RecordingLink(), principal=ANYONE)

    def publish(self, session: Session | None = None, *values: bytes) -> Receipt:
        data = b"".join(
            publish(HERALD, "little", channel=1, value=value) for value in values or [b"a"]
        )
        batch, sender = self.broker.batch, (session or self.session)
        herald_kernel.scan(data, 0, batch, self.broker.topics, sender.sender, order="little")
        try:
            return self.broker.publish_batch(sender, batch)
        finally:
            batch.clear()

    def acknowledge(self, receipt: Receipt, answer: bytes) -> None:
        self.broker.acknowledge(self.session, receipt, answer, lambda yes: b"no " + yes)


def test_answers_wait_for_the_disk_and_keep_their_order() -> None:
    desk = Desk()
    desk.acknowledge(desk.publish(), b"first ")
    desk.session.reply(b"second ")
    desk.log.write()
    assert desk.link.read() == b"", "with the system is not on disk"
    desk.log.commit()
    assert desk.link.read() == b"first second "
    desk.acknowledge(desk.publish(), b"third")
    assert desk.link.read() == b""
    desk.log.commit()
    assert desk.link.read() == b"third"
    desk.session.reply(b"at once")
    assert desk.link.read() == b"at once"


def test_each_waits_for_what_its_durability_asks() -> None:
    memory, system = Desk(Durability.MEMORY), Desk(Durability.OS)
    memory.acknowledge(memory.publish(), b"at once")
    assert memory.link.read() == b"at once"
    system.acknowledge(system.publish(), b"written")
    assert system.link.read() == b""
    system.log.write()
    assert system.link.read() == b"written"


def test_one_that_need_not_wait_still_comes_behind_those_that_do() -> None:
    desk = Desk()
    desk.acknowledge(desk.publish(), b"slow ")
    desk.log.durability = Durability.MEMORY
    desk.acknowledge(desk.publish(), b"fast")
    assert desk.link.read() == b""
    desk.log.commit()
    assert desk.link.read() == b"slow fast"


def test_what_failed_is_refused_in_its_place() -> None:
    desk = Desk()
    desk.acknowledge(desk.publish(), b"one ")
    desk.log.write()
    desk.acknowledge(desk.publish(), b"two ")
    desk.session.reply(b"three ")
    desk.log.fail()
    assert desk.link.read() == b"no one no two three ", "written is not enough for fsync"
    desk.acknowledge(desk.publish(), b"four")
    desk.log.commit()
    assert desk.link.read() == b"four"


def test_what_was_safe_before_a_failure_is_not_refused() -> None:
    desk = Desk(Durability.OS)
    desk.acknowledge(desk.publish(), b"one ")
    desk.log.write()
    desk.acknowledge(desk.publish(), b"two")
    desk.log.fail()
    assert desk.link.read() == b"one no two"


def test_an_empty_answer_is_heard_of_only_when_it_fails_and_holds_up_nothing() -> None:
    desk = Desk()
    desk.acknowledge(desk.publish(), b"")
    desk.session.reply(b"pong")
    assert desk.link.read() == b"pong"
    desk.log.commit()
    assert desk.link.read() == b""
    desk.acknowledge(desk.publish(), b"")
    desk.acknowledge(desk.publish(), b"")
    desk.log.fail()
    assert desk.link.read() == b"no ", "what failed together is told of once"


def test_a_commit_that_fails_behind_one_that_succeeded_is_told_of() -> None:
    for answers, told in (((b"one", b"two"), b"no two"), ((b"", b""), b"no ")):
        desk = Desk()
        desk.acknowledge(desk.publish(), answers[0])
        desk.log.write()
        desk.acknowledge(desk.publish(), answers[1])
        desk.session.finish()
        desk.log.sync()
        assert desk.link.read() == answers[0]
        assert not desk.link.closed, "the second answer is to come"
        desk.log.fail()
        assert desk.link.read() == told
        assert desk.link.closed


def test_an_answer_behind_a_failed_commit_waits_for_its_own() -> None:
    desk = Desk()
    settled: list[tuple[str, bool]] = []
    first = desk.publish()
    desk.broker.when_settled(first, lambda safe: settled.append(("first", safe)))
    desk.acknowledge(first, b"first ")
    desk.log.fail()
    assert settled == [("first", False)]
    second = desk.publish()
    desk.broker.when_settled(second, lambda safe: settled.append(("second", safe)))
    desk.acknowledge(second, b"second ")
    desk.log.write()
    assert settled == [("first", False)]
    desk.log.sync()
    assert settled == [("first", False), ("second", True)]
    assert desk.link.read() == b"no first second "


def test_a_log_that_takes_nothing_delivers_nothing() -> None:
    desk = Desk()
    desk.broker.subscribe(desk.session, "#")
    desk.log.available = False
    with pytest.raises(LogUnavailable):
        desk.publish()
    record = Record(HERALD, Kind.NOTIFY, "", b"", desk.session.sender, desk.session.name, 0)
    with pytest.raises(LogUnavailable):
        desk.broker.append_record(desk.session, record)
    assert desk.link.read() == b""
    assert not desk.broker.counters.messages_received
    desk.log.available = True
    assert desk.broker.append_record(desk.session, record).first_offset == 0
    assert desk.publish().first_offset == 1
    assert desk.broker.counters.messages_received[HERALD] == 2


def test_a_session_is_closed_behind_its_last_answer_also_one_that_fails() -> None:
    for end, told in ((KeptLog.commit, b"answer"), (KeptLog.fail, b"no answer")):
        desk = Desk()
        desk.acknowledge(desk.publish(), b"answer")
        desk.session.finish()
        assert not desk.link.closed
        end(desk.log)
        assert desk.link.read() == told
        assert desk.link.closed
    for end, told in ((KeptLog.commit, b""), (KeptLog.fail, b"no ")):
        desk = Desk()
        desk.acknowledge(desk.publish(), b"")
        desk.session.finish()
        assert not desk.link.closed
        end(desk.log)
        assert desk.link.read() == told
        assert desk.link.closed
    idle = Desk()
    idle.session.finish()
    assert idle.link.closed


def test_a_client_with_too_many_answers_waiting_is_not_read() -> None:
    desk = Desk()
    half = bytes(ANSWERS_WAITING_BYTES_MAX // 2)
    desk.acknowledge(desk.publish(), half)
    desk.acknowledge(desk.publish(), half)
    assert not desk.link.paused
    desk.session.reply(b"x")
    desk.session.reply(b"y")
    assert desk.link.pauses == 1
    desk.log.commit()
    assert not desk.link.paused
    assert desk.link.read() == half + half + b"xy"
    desk.acknowledge(desk.publish(), half)
    desk.acknowledge(desk.publish(), half + b"z")
    assert desk.link.pauses == 1, "again"
    desk.log.commit()
    assert desk.link.pauses == 0
    assert desk.link.read() == half + half + b"z"


def test_a_client_is_read_again_while_a_few_answers_wait() -> None:
    desk = Desk()
    most = bytes(ANSWERS_WAITING_BYTES_MAX)
    receipt = desk.publish()
    desk.acknowledge(receipt, most)
    desk.acknowledge(receipt._replace(commit=receipt.commit + 1), b"later")
    assert desk.link.paused
    desk.log.commit()
    assert not desk.link.paused
    assert desk.link.read() == most


def test_publishers_wait_while_the_log_is_crowded() -> None:
    desk = Desk()
    other = desk.join()
    desk.publish()
    desk.log.crowded = True
    desk.publish()
    desk.publish()
    assert desk.link.pauses == 1
    assert not other.link.paused, "a session that sends nothing is not paused"  # type: ignore[attr-defined]
    desk.log.commit()
    assert desk.link.pauses == 1, "it is crowded still"
    desk.publish(other)
    desk.broker.close(other)
    desk.log.crowded = False
    desk.log.commit()
    assert desk.link.pauses == 0
    assert other.link.pauses == 1, "its link is closed"  # type: ignore[attr-defined]


def test_answers_of_a_client_that_has_left_are_forgotten() -> None:
    desk = Desk()
    desk.acknowledge(desk.publish(), b"answer")
    desk.broker.close(desk.session)
    desk.log.commit()
    assert desk.link.read() == b""


def test_a_refusal_that_breaks_costs_its_own_connection_alone() -> None:
    desk = Desk()
    other = desk.join()

    def broken(_: bytes) -> bytes:
        raise RuntimeError("impossible")

    desk.broker.acknowledge(desk.session, desk.publish(), b"answer", broken)
    desk.broker.acknowledge(other, desk.publish(other), b"answer", lambda yes: b"no " + yes)
    desk.log.fail()
    assert desk.link.aborted
    assert other.link.read() == b"no answer"  # type: ignore[attr-defined]
    assert desk.broker.counters.connections_failed["internal error"] == 1
