"""Groups of many members, and members of many groups: their work is bounded.

Work is counted in calls of Python, which do not depend on the load of the machine.
"""

import sys
from array import array
from collections.abc import Callable

from penstock.core.audiences import Encoding
from penstock.core.groups.lease_list import LeaseList
from penstock.core.groups.ledger import GroupSettings, Ledger
from penstock.limits import (
    GROUP_DELIVERY_SECONDS_MAX,
    GROUP_LEASE_BYTES,
    GROUP_MESSAGE_BYTES,
    GROUP_POLL_MEMBER_SECONDS,
    GROUP_POLL_SECONDS_MAX,
    GROUP_SETTLED_SECONDS,
    GROUP_SWEEP_SECONDS,
    GROUPS_SETTLED_AT_ONCE_MAX,
)
from penstock.memory import Purpose
from tests.support.group_desk import HERALD, LAMAMQ, AcknowledgingLink, GroupClient, GroupDesk


def calls(action: Callable[[], object]) -> int:
    """Return the number of calls that an action makes, of Python and of C."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


# --- Groups of many members -----------------------------------------------------------------------


def crowd(
    members: int, *, options: str = "", **settings: float
) -> tuple[GroupDesk, list[GroupClient]]:
    """A group with many members, each of which may have one message."""
    desk = GroupDesk(unacked_max=members, **settings)
    return desk, [desk.join(f"channel/+@group=g{options}") for _ in range(members)]


def words(count: int) -> str:
    return " ".join(str(number) for number in range(count))


def test_the_work_for_each_run_does_not_grow_with_the_members() -> None:
    def work(members: int) -> float:
        desk, clients = crowd(members)
        found = calls(lambda: desk.send(words(members)))
        assert all(client.read() for client in clients)
        return found / members

    assert work(400) < 1.5 * work(100)


def test_the_work_for_an_answer_does_not_grow_with_the_members() -> None:
    def work(members: int) -> float:
        desk, clients = crowd(members)
        desk.send(words(members))
        client = clients[members // 2]
        word = client.read()
        return calls(lambda: client.answer(word))

    assert work(400) < 1.5 * work(100)


def test_the_work_for_each_message_of_an_ordered_group_does_not_grow_with_the_members() -> None:
    def work(members: int) -> float:
        desk, _ = crowd(members, options=",ordered=topic")
        desk.send("a")
        desk.wait(0)
        return calls(lambda: desk.send("b c d"))

    assert work(400) < 1.5 * work(100)


def test_the_work_of_a_member_that_is_late_does_not_grow_with_the_members() -> None:
    def work(members: int) -> float:
        desk, _ = crowd(members, ack_wait_seconds=10)
        desk.send("a")
        return calls(lambda: desk.wait(10.2))

    assert work(400) < 1.5 * work(100)


def test_a_group_lets_others_have_their_turn() -> None:
    desk, clients = crowd(50)
    desk.clock.look_seconds = GROUP_DELIVERY_SECONDS_MAX / 10
    later: list[Callable[[], None]] = []
    desk.broker.slices.schedule = later.append
    desk.send(words(50))
    assert 1 <= sum(bool(client.link.written) for client in clients) < 15
    before = len(later)
    desk.groups.drained(clients[0].session)
    assert sum(bool(client.link.written) for client in clients) < 15, "not before its next turn"
    assert len(later) == before
    while later:
        later.pop()()
    assert sorted(int(client.read()) for client in clients) == list(range(50))


def test_messages_of_late_members_are_taken_in_steps() -> None:
    ledger = Ledger(0, settings=GroupSettings(ack_wait_seconds=1))
    for number in range(3):
        ledger.lease(f"m{number}", 10 * number, array("I", range(10)), now=0)
    left = [ledger.leased for _ in ledger.expiring(2)]
    assert left == [20, 10, 0]


def test_a_member_that_acknowledges_between_two_steps_keeps_its_other_messages() -> None:
    ledger = Ledger(0, settings=GroupSettings(ack_wait_seconds=1))
    for base in (0, 10):
        lease = ledger.lease("m", base, array("I", range(10)), now=0)
    steps = ledger.expiring(2)
    assert next(steps) == "m"
    ledger.acknowledged(lease, now=2)
    assert list(steps) == []
    assert ledger.held_by("m") == 10


def test_a_member_whose_memory_was_used_up_gets_messages_again() -> None:
    desk = GroupDesk()
    client = desk.join()
    client.link.account.overdrawn = True
    desk.send("a")
    assert client.read() == ""
    client.link.account.overdrawn = False
    desk.wait(1)
    assert client.read() == "a"


# --- Members of many groups -----------------------------------------------------------------------


def member_of_many(
    groups: int, encoding: Encoding, *, messages: int = 1
) -> tuple[GroupDesk, GroupClient]:
    """A client that has messages in each of many groups."""
    desk = GroupDesk()
    client = desk.open(encoding)
    for number in range(groups):
        desk.groups.open(f"g{number}", lambda: None)
        desk.broker.subscribe(client.session, f"channel/1@group=g{number}")
        desk.run()
    desk.send(words(messages))
    desk.wait(GROUP_SWEEP_SECONDS)  # all states are stored
    desk.send(words(messages))
    desk.wait(GROUP_SWEEP_SECONDS)
    return desk, client


def test_a_link_without_news_is_asked_once_for_all_groups_and_less_and_less_often() -> None:
    desk, client = member_of_many(20, HERALD)
    link = client.link
    assert isinstance(link, AcknowledgingLink)
    before = link.asked
    for _ in range(1000):
        desk.clock.seconds += 0.001
        desk.broker.timers.run_due()
    assert before <= 16
    assert link.asked - before <= 4 + 1 / GROUP_POLL_SECONDS_MAX
    client.take()
    desk.wait(GROUP_POLL_SECONDS_MAX)
    assert all(not held for n in range(20) for _, held in desk.groups.members(f"g{n}"))


def test_a_link_with_news_is_asked_less_often_if_its_client_is_in_many_groups() -> None:
    desk, client = member_of_many(400, HERALD)
    link = client.link
    assert isinstance(link, AcknowledgingLink)
    before = link.asked
    for _ in range(200):
        link.taken += 1
        desk.clock.seconds += 0.01
        desk.broker.timers.run_due()
    assert link.asked - before <= 2 / (400 * GROUP_POLL_MEMBER_SECONDS)


def test_the_work_for_a_run_does_not_grow_with_the_groups_of_its_member() -> None:
    def work(groups: int) -> float:
        desk, _ = member_of_many(groups, LAMAMQ)
        return calls(lambda: desk.send("a")) / groups

    assert work(60) < 1.5 * work(15)


def test_memory_of_messages_that_are_done_is_given_back_after_some_runs_in_other_groups() -> None:
    desk, client = member_of_many(3, LAMAMQ, messages=2)
    account = client.link.account
    for group in ("g0", "g1", "g2"):
        desk.groups.acknowledgments.acknowledge(
            client.session.memberships[group], range(1, 5), None
        )
    for word in "ab":
        desk.send(word)
    assert account.size(Purpose.GROUPS) == 3 * (2 * GROUP_LEASE_BYTES + 2 * GROUP_MESSAGE_BYTES)
    client.leave("channel/1@group=g0")
    assert account.size(Purpose.GROUPS) == 2 * (2 * GROUP_LEASE_BYTES + 2 * GROUP_MESSAGE_BYTES)
    client.leave("channel/1@group=g1")
    client.leave("channel/1@group=g2")
    assert account.size(Purpose.GROUPS) == 0


def test_many_groups_are_not_woken_by_each_commit() -> None:
    count = 2 * GROUPS_SETTLED_AT_ONCE_MAX
    desk = GroupDesk()
    members = [desk.join(f"channel/1@group=g{number}") for number in range(count)]
    desk.send("a")
    assert {member.read() for member in members} == {"a"}
    work = calls(lambda: desk.send("b"))
    assert {member.read() for member in members} == {""}
    desk.wait(count * GROUP_SETTLED_SECONDS)
    assert {member.read() for member in members} == {"b"}
    assert work < 10 * count


def test_the_work_for_an_answer_does_not_grow_with_the_groups_of_its_member() -> None:
    def work(groups: int) -> int:
        desk, client = member_of_many(groups, LAMAMQ)
        assert client.session.leases is not None
        lease = list(client.session.leases)[-1]
        run = desk.groups.acknowledgments.answered_run
        return calls(lambda: run(client.session, lease.first_id, 1))

    assert work(60) < 1.5 * work(15)


def test_leases_that_have_ended_are_removed_also_behind_one_that_has_not() -> None:
    ledger, leases = Ledger(0, settings=GroupSettings()), LeaseList()
    for number in range(1000):
        lease = ledger.lease("m", number, array("I", [0]), now=0)
        lease.first_id = number
        leases.add(lease)
        if number:
            ledger.all_done(lease)
    assert len(leases) < 100
    assert leases.by_id(0) is not None
    assert leases.by_id(999) is None
