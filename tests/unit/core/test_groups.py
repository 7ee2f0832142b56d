"""Consumer groups of a broker: what is stored, what is refused, and what stays in memory."""

from collections.abc import Callable

import pytest

from penstock.core.access import ANYONE
from penstock.core.broker import Broker, BrokerSettings
from penstock.core.groups import Groups, GroupSettings
from penstock.core.routing import Encoding
from penstock.core.sessions import Session
from penstock.errors import LogUnavailable, NoHistory
from penstock.memory import Purpose
from penstock.ports import GroupState
from penstock.protocols import PROTOCOLS
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog

LAMAMQ = Encoding(PROTOCOLS["lamamq"], "big")


class Store:
    """See ports.GroupStore: `error` fails the next calls."""

    is_shared = False

    def __init__(self) -> None:
        self.states: dict[str, GroupState] = {}
        self.error: Exception | None = None
        self.saves = 0

    def load(self, group: str, then: Callable[[GroupState | Exception | None], None]) -> None:
        then(self.error or self.states.get(group))

    def save(self, state: GroupState, then: Callable[[Exception | None], None]) -> None:
        self.saves += 1
        if self.error is None:
            self.states[state.group] = state
        then(self.error)

    def forget(self, group: str, then: Callable[[Exception | None], None]) -> None:
        self.states.pop(group, None)
        then(self.error)


class Desk:
    """A broker with groups, a log, a store and a clock that a test moves."""

    def __init__(self, **settings: float) -> None:
        self.log = KeptLog()
        self.clock = FakeClock()
        self.store = Store()
        self.broker = Broker(
            log=self.log,
            reader=self.log,
            group_store=self.store,
            clock=self.clock,
            settings=BrokerSettings(groups=GroupSettings(**settings)),  # type: ignore[arg-type]
        )
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle

    @property
    def groups(self) -> Groups:
        assert self.broker.groups is not None
        return self.broker.groups

    def join(self, text: str = "a@group=g") -> Session:
        session = self.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
        self.groups.open("g", lambda: None)
        self.broker.subscribe(session, text)
        return session

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.broker.timers.run_due()


def test_a_group_is_stored_before_its_first_member_is_answered() -> None:
    desk = Desk()
    answered: list[int] = []
    session = desk.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    desk.groups.open("g", lambda: None)
    desk.broker.subscribe(session, "a@group=g", lambda: answered.append(desk.store.saves))
    assert answered == [1]
    state = desk.store.states["g"]
    assert state.offsets == {0: 0}
    assert state.progress is not None


def test_a_group_leaves_memory_with_its_last_member_and_is_not_stored_without_a_change() -> None:
    desk = Desk()
    first, second = desk.join(), desk.join()
    desk.broker.close(first)
    desk.wait(1)
    assert "g" in desk.groups
    desk.broker.close(second)
    desk.wait(1)
    assert "g" not in desk.groups
    assert desk.store.saves == 1
    assert not second.memberships
    assert second.link.account.size(Purpose.GROUPS) == 0


def test_a_group_that_could_never_be_stored_does_not_stay() -> None:
    desk = Desk()
    session = desk.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    desk.groups.open("g", lambda: None)
    desk.store.error = OSError("no space left on device")
    desk.broker.subscribe(session, "a@group=g")
    assert not session.memberships
    assert "g" not in desk.groups
    desk.wait(1)
    assert "g" not in desk.groups


def test_a_state_that_cannot_be_read_is_no_new_group() -> None:
    desk = Desk()
    desk.store.error = OSError("input/output error")
    with pytest.raises(LogUnavailable, match="cannot be read"):
        desk.join()
    desk.store.error = None
    assert desk.join().memberships


def test_a_broker_that_cannot_store_groups_has_none() -> None:
    log = KeptLog()
    broker = Broker(log=log, reader=log, clock=FakeClock())
    session = broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    with pytest.raises(NoHistory):
        broker.subscribe(session, "a@group=g")


def test_a_session_is_once_in_a_group() -> None:
    desk = Desk()
    session = desk.join()
    desk.groups.open("g", lambda: None)
    assert not desk.broker.subscribe(session, "a@group=g")
    assert len(desk.groups.members("g")) == 1
    assert desk.broker.unsubscribe(session, "a@group=g")
    assert not desk.broker.unsubscribe(session, "a@group=g")
