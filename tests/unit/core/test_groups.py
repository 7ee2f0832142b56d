"""Consumer groups of a broker: what is stored, what is refused, and what stays in memory."""

from collections.abc import Callable

import msgspec
import pytest

from penstock.core.access import ANYONE
from penstock.core.broker import Broker
from penstock.core.groups import Redriven, snapshots
from penstock.errors import (
    GroupElsewhere,
    LogError,
    LogUnavailable,
    NoHistory,
    NoSuchGroup,
    OffsetPastEnd,
    TierUnavailable,
)
from penstock.limits import (
    GROUP_OWNER_SECONDS,
    GROUP_READ_RETRY_SECONDS,
    GROUP_SWEEP_SECONDS,
    SLICE_FIRST_STEPS,
)
from penstock.memory import Purpose
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.group_desk import HERALD, LAMAMQ, GroupClient, GroupDesk, Store
from tests.support.kept_log import KeptLog


def test_a_group_is_stored_before_its_first_member_is_answered() -> None:
    desk = GroupDesk()
    answered: list[int] = []
    session = desk.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    desk.groups.open("g", lambda: None)
    desk.broker.subscribe(session, "a@group=g", lambda: answered.append(desk.store.saves))
    assert answered == [1]
    state = desk.store.states["g"]
    assert state.offsets == {0: 0}
    assert state.progress is not None


def test_a_group_leaves_memory_with_its_last_member_and_is_not_stored_without_a_change() -> None:
    desk = GroupDesk()
    first, second = desk.join(), desk.join()
    first.close()
    desk.wait(1)
    assert "g" in desk.groups
    second.close()
    desk.wait(1)
    assert "g" not in desk.groups
    assert desk.store.saves == 1
    assert second.has_left
    assert second.link.account.size(Purpose.GROUPS) == 0


def stored_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[GroupDesk, GroupClient, Callable[[], None]]:
    """A group whose large state is being stored, and a call that lets this come to its end."""
    monkeypatch.setattr(snapshots, "GROUP_PIECE_ROWS_MAX", 1)
    desk = GroupDesk()
    member = desk.join()
    for number in range(3 * SLICE_FIRST_STEPS):
        desk.send(f"m{number}")
    later: list[Callable[[], None]] = []
    desk.broker.slices.schedule = later.append
    desk.wait(1)
    assert desk.store.saves == 1, "that of the new group"

    def end() -> None:
        while later:
            later.pop(0)()
        desk.run()

    return desk, member, end


def test_a_large_state_is_stored_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, _, end = stored_in_steps(monkeypatch)
    end()
    progress = desk.store.states["g"].progress
    assert progress is not None
    assert [run.first for run in progress.pending] == list(range(3 * SLICE_FIRST_STEPS))


def test_a_group_that_is_removed_while_it_is_stored_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, member, end = stored_in_steps(monkeypatch)
    desk.groups.remove("g", lambda _: None)
    end()
    assert member.has_left
    assert desk.store.states == {}
    assert not desk.join().has_left
    assert "g" in desk.store.states


def test_a_stop_waits_for_a_large_state(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, _, end = stored_in_steps(monkeypatch)
    stored: list[int] = []
    desk.groups.flush(lambda: stored.append(desk.store.saves))
    assert stored == []
    end()
    assert stored == [2]


def test_a_group_that_could_never_be_stored_does_not_stay() -> None:
    desk = GroupDesk()
    session = desk.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    desk.groups.open("g", lambda: None)
    desk.store.error = OSError("no space left on device")
    desk.broker.subscribe(session, "a@group=g")
    assert not session.memberships
    assert "g" not in desk.groups
    desk.wait(1)
    assert "g" not in desk.groups


def test_a_state_that_cannot_be_read_is_no_new_group() -> None:
    desk = GroupDesk()
    desk.store.error = OSError("input/output error")
    with pytest.raises(LogUnavailable, match="cannot be read"):
        desk.join()
    desk.store.error = None
    assert not desk.join().has_left


def test_a_broker_that_cannot_store_groups_has_none() -> None:
    log = KeptLog()
    broker = Broker(log=log, reader=log, clock=FakeClock())
    session = broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    with pytest.raises(NoHistory):
        broker.subscribe(session, "a@group=g")


def test_a_session_is_once_in_a_group() -> None:
    desk = GroupDesk()
    session = desk.join("a@group=g").session
    desk.groups.open("g", lambda: None)
    assert not desk.broker.subscribe(session, "a@group=g")
    assert len(desk.groups.members("g")) == 1
    assert desk.broker.unsubscribe(session, "a@group=g")
    assert not desk.broker.unsubscribe(session, "a@group=g")


# --- Where a group begins -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "got"),
    [
        ("", ""),
        (",earliest", "a b c d"),
        (",#3", "d"),
        (",#0", "a b c d"),
        (",-90s", "c d"),
        (",-10h", "a b c d"),
        (",2023-11-14T22:30:30Z", "c d"),
        (",2500-01-01T00:00:00Z", ""),
    ],
)
def test_a_new_group_begins_where_its_first_member_says(start: str, got: str) -> None:
    desk = GroupDesk()
    desk.send("a b")
    desk.wait(60)
    desk.send("c d")
    desk.wait(60)
    member = desk.join(f"channel/+@group=g{start}")
    assert member.read() == got
    desk.send("e")
    assert member.read() == "e"
    other = desk.join("channel/+@group=g,earliest")
    assert other.read() == "", "a group that exists goes on"


def test_a_group_delivers_nothing_before_its_time_is_looked_up() -> None:
    desk = GroupDesk()
    desk.send("a")
    member = desk.join("channel/+@group=g,-1s", runs=False)
    desk.send("b", commits=False)
    desk.log.commit()
    desk.broker.timers.run_due()
    assert member.read() == ""
    desk.run()
    assert member.read() == "a b"


def test_a_group_is_stored_when_its_time_is_looked_up() -> None:
    desk = GroupDesk()
    desk.send("a b")
    answered: list[bool] = []
    session = desk.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    for member in (session, desk.open().session):
        desk.groups.open("g", lambda: None)
        desk.broker.subscribe(
            member, "channel/+@group=g,-60s", lambda: answered.append("g" in desk.store.states)
        )
    desk.clock.seconds += 1
    desk.broker.timers.run_due()  # what has changed is stored now
    assert (answered, desk.store.states) == ([], {})
    desk.run()
    assert answered == [True, True]
    assert desk.store.states["g"].offsets == {0: 0}
    assert len(desk.groups.members("g")) == 2


def test_a_broker_that_is_killed_while_a_time_is_looked_up_has_no_group() -> None:
    desk = GroupDesk()
    desk.send("a b")
    desk.join("channel/+@group=g,-60s", runs=False)
    desk.groups.flush(lambda: None)
    desk = desk.restarted()
    assert desk.store.states == {}
    assert desk.join("channel/+@group=g,-60s").read() == "a b"


def test_a_reset_while_a_time_is_looked_up_counts() -> None:
    desk = GroupDesk()
    desk.send("a b")
    member = desk.join("channel/+@group=g,-60s", runs=False)
    stored: list[Exception | None] = []
    assert desk.groups.reset("g", {0: 1}, stored.append) == {0: 1}
    desk.run()
    assert stored == [None]
    assert member.read() == "b"


def test_a_group_that_is_removed_while_a_time_is_looked_up_has_no_members() -> None:
    desk = GroupDesk()
    desk.send("a b")
    answered: list[bool] = []
    session = desk.broker.open(LAMAMQ, RecordingLink(), principal=ANYONE)
    desk.groups.open("g", lambda: None)
    desk.broker.subscribe(session, "channel/+@group=g,-60s", lambda: answered.append(True))
    desk.groups.remove("g", lambda _: None)
    desk.run()
    assert answered == [True]
    assert not session.memberships
    assert desk.store.states == {}


def test_a_time_that_cannot_be_looked_up_is_the_first_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = GroupDesk()
    desk.send("a")
    desk.wait(60)
    desk.send("b")
    failed = LogUnavailable("input/output error")
    monkeypatch.setattr(desk.log, "find_time", lambda _, then: then(failed))
    member = desk.join("channel/+@group=g,-1s")
    assert member.read() == "a b"


@pytest.mark.parametrize("failed", [OffsetPastEnd(2, 2), TierUnavailable(2)])
def test_a_time_is_looked_up_again_while_the_log_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, failed: LogError
) -> None:
    desk = GroupDesk()
    desk.send("a")
    desk.wait(60)
    desk.send("b")
    with monkeypatch.context() as patch:
        patch.setattr(desk.log, "find_time", lambda _, then: then(failed))
        member = desk.join("channel/+@group=g,-1s")
        desk.wait(GROUP_READ_RETRY_SECONDS)
        assert member.read() == ""
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert member.read() == "b"


def test_a_time_of_a_group_that_was_deleted_is_not_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = GroupDesk()
    times: list[int] = []

    def find_time(timestamp_us: int, then: Callable[[int | LogError], None]) -> None:
        times.append(timestamp_us)
        then(OffsetPastEnd(0, 0))

    monkeypatch.setattr(desk.log, "find_time", find_time)
    desk.join("channel/+@group=g,-1s")
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert len(times) == 2
    group = desk.groups._groups["g"]
    desk.groups._remove(group)
    desk.wait(2 * GROUP_READ_RETRY_SECONDS)
    assert len(times) == 2


# --- Changes --------------------------------------------------------------------------------------


def test_a_change_is_stored_after_a_while_and_what_is_stored_is_not_stored_again() -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.wait(1)
    before = desk.store.saves
    desk.send("a b")
    assert desk.store.saves == before
    desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.store.saves == before + 1
    assert member.read() == "a b"
    member.answer("a")
    desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.store.states["g"].offsets == {0: 1}
    saves = desk.store.saves
    desk.wait(1)
    assert desk.store.saves == saves


def test_a_store_that_fails_is_repeated() -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.send("a")
    member.read()
    member.answer("a")
    desk.store.error = OSError("no space left on device")
    desk.wait(GROUP_SWEEP_SECONDS)
    desk.store.error = None
    desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.store.states["g"].offsets == {0: 1}


@pytest.mark.parametrize(("offset", "at"), [(1, 2), (3, 3), (9, 4)])
def test_a_reset_stays_in_the_log(offset: int, at: int) -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.send("a b")
    desk.send("c d")
    member.read()
    desk.log.forget(2)
    stored: list[Exception | None] = []
    desk.groups.reset("g", {0: offset, 5: 1}, stored.append)
    assert (stored, desk.store.states["g"].offsets) == ([None], {0: at})
    desk.run()
    assert member.read() == " ".join("abcd"[at:])


def test_a_change_of_a_group_without_members_is_stored_and_leaves_memory() -> None:
    desk = GroupDesk(deliveries_max=1)
    member = desk.join()
    desk.send("a b")
    member.read()
    member.answer("a", failure="no")
    desk.log.commit()
    member.close()
    desk.log.commit()
    desk.wait(1)
    assert "g" not in desk.groups
    desk.groups.open("g", lambda: None)
    done: list[Redriven | Exception] = []
    desk.groups.redrive("g", done.append)
    desk.run()
    assert done == [Redriven(2, 0)]
    desk.wait(1)
    assert "g" not in desk.groups
    assert desk.join().read() == "a b"


def test_a_change_waits_for_a_store_that_is_under_way() -> None:
    desk = GroupDesk()
    desk.join()
    desk.send("a b")
    desk.store.is_holding = True
    desk.wait(GROUP_SWEEP_SECONDS)
    stored: list[Exception | None] = []
    desk.groups.reset("g", {0: 1}, stored.append)
    assert desk.store.states["g"].offsets == {0: 0}
    desk.store.is_holding = False
    desk.store.answer()
    desk.wait(GROUP_SWEEP_SECONDS)
    assert stored == [None]
    assert desk.store.states["g"].offsets == {0: 1}


def test_a_change_of_a_group_that_another_node_takes_over_meanwhile_fails() -> None:
    desk = GroupDesk(store=shared())
    desk.join()
    desk.send("a b")
    desk.store.is_holding = True
    desk.wait(GROUP_SWEEP_SECONDS)
    stored: list[Exception | None] = []
    desk.groups.reset("g", {0: 1}, stored.append)
    desk.store.error = GroupElsewhere("g", 3)
    desk.store.answer()
    desk.wait(GROUP_SWEEP_SECONDS)
    assert [type(error) for error in stored] == [NoSuchGroup]
    desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.broker.timers.run_due() is None, "nothing is left to do for it"


def test_all_groups_are_stored_when_the_broker_stops() -> None:
    desk = GroupDesk()
    answering, receiving = desk.join("channel/1@group=g"), desk.join("channel/2@group=h", HERALD)
    desk.send("a")
    desk.send("b", channel=2)
    desk.store.is_holding = True
    desk.wait(GROUP_SWEEP_SECONDS)  # a store of both is under way
    answering.read()
    answering.answer("a")
    receiving.take()
    stopped: list[bool] = []
    desk.groups.flush(lambda: stopped.append(True))
    desk.store.answer()
    assert not stopped, "what came meanwhile is not stored"
    desk.store.answer()
    assert stopped == [True]
    assert desk.store.states["g"].offsets == {0: 2}
    assert desk.store.states["h"].offsets == {0: 2}


def test_a_group_that_is_removed_has_no_members_and_no_state() -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.send("a")
    assert member.read() == "a"
    removed: list[Exception | None] = []
    assert desk.groups.remove("g", removed.append) == [member.session]
    assert removed == [None]
    assert member.has_left
    desk.wait(1)
    assert ("g" in desk.groups, desk.store.states) == (False, {})
    desk.send("b")
    assert member.read() == ""


# --- Several nodes --------------------------------------------------------------------------------


def shared() -> Store:
    return Store(is_shared=True)


def used_at(desk: GroupDesk, node: int) -> None:
    """Say in the stored state that the members of group g are at a node."""
    state = desk.store.states["g"]
    assert state.progress is not None
    progress = msgspec.structs.replace(state.progress, used=True, node=node)
    desk.store.states["g"] = msgspec.structs.replace(state, progress=progress)


def is_used(desk: GroupDesk) -> bool:
    progress = desk.store.states["g"].progress
    assert progress is not None
    return progress.used


def test_the_stored_state_of_a_group_is_not_beyond_the_log() -> None:
    """The next process of a node assigns offsets that were not committed to other messages."""
    for store, stored in ((shared(), 1), (Store(), 3)):
        desk = GroupDesk(store=store)
        desk.send("a")
        desk.send("b c", commits=False)
        member = desk.join()
        state = desk.store.states["g"]
        assert state.offsets == {0: stored}
        assert state.progress is not None
        assert state.progress.next == stored
        desk.log.commit()
        desk.run()
        assert member.read() == "", "the group begins behind them"
        desk.send("d")
        assert member.read() == "d"


def test_other_nodes_see_that_a_group_has_members_here() -> None:
    desk = GroupDesk(store=shared())
    member = desk.join()
    assert is_used(desk)
    saves = desk.store.saves
    desk.wait(GROUP_OWNER_SECONDS - 2 * GROUP_SWEEP_SECONDS)
    assert desk.store.saves == saves
    for _ in range(4):
        desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.store.saves == saves + 1, "it is said again, without a change"
    desk.wait(GROUP_OWNER_SECONDS)
    assert desk.store.saves == saves + 2
    member.close()
    desk.wait(GROUP_SWEEP_SECONDS)
    assert not is_used(desk)
    assert "g" not in desk.groups


def test_a_group_without_other_nodes_is_not_stored_again_without_a_change() -> None:
    desk = GroupDesk()
    desk.join()
    desk.wait(1)
    saves = desk.store.saves
    desk.wait(3 * GROUP_OWNER_SECONDS)
    assert desk.store.saves == saves
    assert not is_used(desk)


def test_a_member_joins_when_other_nodes_can_see_it() -> None:
    desk = GroupDesk(store=shared())
    first = desk.join()
    desk.wait(1)
    first.close()
    desk.store.is_holding = True
    desk.wait(GROUP_SWEEP_SECONDS)  # the store that says that there are no members
    second = desk.open()
    joined: list[bool] = []
    desk.groups.open("g", lambda: None)
    desk.broker.subscribe(second.session, "channel/+@group=g", lambda: joined.append(is_used(desk)))
    desk.store.answer()
    assert not joined
    desk.store.answer()
    assert joined == [True]
    desk.send("a")
    assert second.read() == "a"


def test_the_members_of_a_group_are_at_one_node() -> None:
    desk = GroupDesk(store=shared())
    desk.join().close()
    desk.wait(1)
    used_at(desk, 3)
    with pytest.raises(GroupElsewhere):
        desk.join()
    desk.groups.open("g", lambda: None)
    for change in (
        lambda: desk.groups.reset("g", {0: 0}, lambda _: None),
        lambda: desk.groups.redrive("g", lambda _: None),
        lambda: desk.groups.remove("g", lambda _: None),
    ):
        with pytest.raises(GroupElsewhere):
            change()
    assert "g" not in desk.groups
    used_at(desk, 0)
    assert not desk.join().has_left, "this node had them before it was restarted"


def test_members_are_disconnected_when_another_node_has_taken_the_group_over() -> None:
    desk = GroupDesk(store=shared())
    first, second = desk.join(), desk.join("channel/+@group=g", HERALD)
    desk.store.error = GroupElsewhere("g", 3)
    desk.send("a b")
    desk.wait(GROUP_SWEEP_SECONDS)
    for member in (first, second):
        assert member.has_left
        assert member.link.closed
    assert "g" not in desk.groups


def test_a_state_of_several_partitions_has_an_offset_of_each() -> None:
    desk = GroupDesk()
    desk.second_partition()
    desk.send_elsewhere("x y")
    member = desk.join("channel/+@group=g,earliest")
    assert member.read() == "x y"
    member.answer("x")
    desk.wait(GROUP_SWEEP_SECONDS)
    state = desk.store.states["g"]
    assert state.offsets == {0: 0, 1: 1}
    assert state.progress is not None
    assert state.progress.partitions == {0: 0, 1: 2}
    member.close()
    desk.wait(1)
    assert desk.join().read() == "y"


# --- Failures -------------------------------------------------------------------------------------


def dead(desk: GroupDesk) -> list[str]:
    """Write all dead letters; return their values."""
    for _ in range(20):
        desk.log.commit()
        desk.run()
    return [record.value.decode() for record in desk.log.records]


@pytest.mark.parametrize("way", ["leaves", "is ended", "stops with the broker", "has no answers"])
def test_messages_of_a_member_that_did_not_fail_never_die(way: str) -> None:
    desk = GroupDesk(deliveries_max=1)
    encoding = HERALD if way == "has no answers" else LAMAMQ
    for _ in range(3):
        member = desk.join(encoding=encoding)
        if not desk.log.next_offset:
            desk.send("a b c")
        assert member.read() == "a b c"
        match way:
            case "leaves":
                member.leave()
            case "is ended":
                member.session.end()
            case "stops with the broker":
                desk.groups.stop_delivery()
        member.close()
        assert dead(desk) == []
        if way == "stops with the broker":
            desk.wait(GROUP_SWEEP_SECONDS)
            desk = desk.restarted()


def test_the_state_of_a_broker_that_was_killed_counts_no_failure() -> None:
    desk = GroupDesk(deliveries_max=1)
    assert desk.join().read() == ""
    desk.send("a b c")
    desk.wait(GROUP_SWEEP_SECONDS)
    for _ in range(3):
        desk = desk.restarted()
        assert desk.join().read() == "a b c"
        desk.wait(GROUP_SWEEP_SECONDS)
        assert dead(desk) == []


def test_a_message_that_kills_its_members_dies_and_no_other() -> None:
    desk = GroupDesk(deliveries_max=3)
    member = desk.join()
    desk.send("a b poison c d")
    killed = 0
    processed: list[str] = []
    while len(processed) < 4:
        for word in member.read().split():
            if word == "poison":
                member.close()
                killed += 1
                dead(desk)
                member = desk.join()
                break
            member.answer(word)
            processed.append(word)
    assert (killed, dead(desk)) == (3, ["poison"])
    (record,) = desk.log.records
    headers = dict(record.headers)
    assert headers["penstock-dead-reason"] == b"the member was lost"
    assert headers["penstock-dead-deliveries"] == b"3"


def test_only_the_message_at_which_a_member_is_silent_dies() -> None:
    desk = GroupDesk(deliveries_max=2, ack_wait_seconds=10)
    member = desk.join()
    desk.send("a b c")
    for _ in range(2):
        assert member.read() == "a b c"
        desk.wait(10)
    assert dead(desk) == ["a"]
    assert member.read() == "b c"


# --- Redrives -------------------------------------------------------------------------------------


def desk_with_dead_letters() -> tuple[GroupDesk, GroupClient]:
    """A group whose member has refused all messages of channels 1 and 2."""
    desk = GroupDesk(deliveries_max=1)
    member = desk.join()
    desk.send("a b", channel=1)
    desk.send("c", channel=2)
    assert member.read() == "a b c"
    member.answer("a b c", failure="no")
    assert dead(desk) == ["a", "b", "c"]
    return desk, member


def redriven(desk: GroupDesk) -> Redriven | Exception:
    done: list[Redriven | Exception] = []
    desk.groups.redrive("g", done.append)
    desk.run()
    (found,) = done
    return found


def left_dead(desk: GroupDesk) -> tuple[int, ...]:
    """The offsets of dead letters in the stored state."""
    desk.wait(GROUP_SWEEP_SECONDS)
    progress = desk.store.states["g"].progress
    assert progress is not None
    return progress.dead


def test_dead_letters_whose_messages_are_gone_are_counted_and_stay() -> None:
    desk, member = desk_with_dead_letters()
    desk.log.damage(desk.log.kept[1])
    desk.log.horizon = 1
    assert redriven(desk) == Redriven(messages=1, gone=2)
    assert member.read() == "b"
    assert redriven(desk) == Redriven(messages=0, gone=2), "the other one is delivered again"
    assert left_dead(desk) == (0, 1, 2)
    member.answer("b")
    assert left_dead(desk) == (0, 2)


def test_a_dead_letter_whose_message_is_gone_before_its_delivery_stays() -> None:
    desk, member = desk_with_dead_letters()
    member.leave()
    desk.groups.open("g", lambda: None)
    assert redriven(desk) == Redriven(messages=3, gone=0)
    desk.log.damage(desk.log.kept[1])
    desk.log.horizon = 1
    desk.wait(GROUP_SWEEP_SECONDS)
    member = desk.join()
    assert member.read() == "b"
    member.answer("b")
    assert left_dead(desk) == (0, 2)
    assert desk.store.states["g"].lost == 0, "the letters have the messages"


def test_a_redrive_that_cannot_read_changes_nothing() -> None:
    desk, _ = desk_with_dead_letters()
    desk.log.fetch = lambda *_: _[1](LogUnavailable("the disk is gone"))  # type: ignore[method-assign]
    assert isinstance(redriven(desk), LogUnavailable)
    assert left_dead(desk) == (0, 1, 2)


def test_a_redrive_ends_with_its_group() -> None:
    desk, _ = desk_with_dead_letters()
    done: list[Redriven | Exception] = []
    desk.groups.redrive("g", done.append)
    desk.groups.remove("g", lambda _: None)
    desk.run()
    assert [type(each) for each in done] == [NoSuchGroup]
