"""Acknowledgments of messages of consumer groups: answers, numbers, and bytes."""

from array import array

import pytest

from penstock.core.groups.group import Member
from penstock.core.groups.lease_list import LeaseList
from penstock.core.groups.ledger import GroupSettings, Ledger
from penstock.limits import GROUP_POLL_FULL_SECONDS, GROUP_POLL_SECONDS, GROUP_SWEEP_SECONDS
from tests.support.group_desk import HERALD, GroupDesk

# --- Answers --------------------------------------------------------------------------------------


def test_an_answer_to_a_message_that_a_member_does_not_have_is_unknown() -> None:
    desk = GroupDesk()
    first, second = desk.join(), desk.join()
    desk.send("a b")
    assert (first.read(), second.read()) == ("a", "b")
    acknowledgments = desk.groups.acknowledgments
    own, others = first.ids["a"], second.ids["b"]
    assert acknowledgments.expects(first.session, own)
    assert not acknowledgments.expects(first.session, others)
    assert not acknowledgments.answered(first.session, others, None)
    assert acknowledgments.answered_run(first.session, others, 1) == 0
    assert desk.unacked == 2
    first.answer("a")
    assert not acknowledgments.expects(first.session, own)
    assert not acknowledgments.answered(first.session, own, None), "it was answered before"


def test_an_answer_that_comes_too_late_shows_that_the_member_is_there() -> None:
    desk = GroupDesk(ack_wait_seconds=10, unacked_max=4)
    late, other = desk.join(), desk.join()
    desk.send("a b")
    assert (late.read(), other.read()) == ("a", "b")
    other.answer("b")
    desk.wait(10.2)
    assert other.read() == "a"
    assert not desk.groups.acknowledgments.answered(late.session, late.ids["a"], None)
    other.answer("a")
    desk.send("c")
    assert (late.read(), other.read()) == ("c", "")


def test_a_run_of_answers_ends_with_its_lease_and_at_what_was_answered() -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.send("a b c d")
    desk.send("e f")
    assert member.read() == "a b c d e f"
    member.answer("c")
    run = desk.groups.acknowledgments.answered_run
    assert run(member.session, member.ids["a"], 6) == 2, "up to c"
    assert run(member.session, member.ids["d"], 3) == 1, "the others are another lease"
    assert run(member.session, member.ids["e"], 9) == 2, "there are no more"
    assert desk.unacked == 0


def test_messages_are_acknowledged_by_number() -> None:
    desk = GroupDesk()
    client = desk.join()
    member: Member = client.session.memberships["g"]
    desk.send("a b c")
    desk.send("d e")
    acknowledge = desk.groups.acknowledgments.acknowledge
    assert acknowledge(member, None, None) == 1
    assert desk.position == 1, "without a number it is the first one"
    assert acknowledge(member, range(3, 5), None) == 2, "of two leases"
    assert acknowledge(member, range(1, 9), None) == 2, "those that it still has"
    assert acknowledge(member, range(1, 9), None) == 0
    assert acknowledge(member, None, None) == 0
    assert desk.unacked == 0


def test_what_a_member_refuses_by_number_comes_again() -> None:
    desk = GroupDesk()
    client = desk.join()
    member: Member = client.session.memberships["g"]
    desk.send("a b c")
    client.read()
    assert desk.groups.acknowledgments.acknowledge(member, range(2, 4), "no") == 2
    desk.run()
    assert client.read() == "b c"


@pytest.mark.parametrize(
    ("failure", "reason"), [("", "the member refused it"), ("é" * 600, "é" * 500)]
)
def test_a_dead_letter_has_the_reason_of_the_member(failure: str, reason: str) -> None:
    desk = GroupDesk(deliveries_max=1)
    member = desk.join()
    desk.send("a")
    member.read()
    member.answer("a", failure=failure)
    (record,) = desk.log.records
    assert dict(record.headers)["penstock-dead-reason"].decode() == reason


def test_ids_on_the_wire_wrap_around() -> None:
    ledger = Ledger(0, settings=GroupSettings())
    leases = LeaseList()
    first, second = (ledger.lease("m", base, array("I", range(4)), now=0) for base in (0, 4))
    first.first_id, second.first_id = 0x7FFF_FFFE, 2
    leases.add(first)
    leases.add(second)
    assert [leases.by_id(each) for each in (0x7FFF_FFFE, 0x7FFF_FFFF, 0, 1, 2, 5)] == [
        (first, 0), (first, 1), (first, 2), (first, 3), (second, 0), (second, 3),
    ]  # fmt: skip
    assert leases.by_id(6) is None
    assert leases.by_id(0x7FFF_FFFD) is None


# --- Bytes ----------------------------------------------------------------------------------------


def test_a_client_without_answers_acknowledges_by_receiving() -> None:
    desk = GroupDesk(unacked_max=8)
    member = desk.join(encoding=HERALD)
    desk.send("a b c d")
    desk.wait(GROUP_POLL_SECONDS)
    assert desk.unacked == 4, "its system has not taken them"
    desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.store.states["g"].offsets == {0: 0}
    member.take()
    desk.wait(GROUP_POLL_SECONDS / 2)
    assert desk.unacked == 4
    desk.wait(GROUP_POLL_SECONDS / 2)
    assert desk.unacked == 0
    desk.wait(GROUP_SWEEP_SECONDS)
    assert desk.store.states["g"].offsets == {0: 4}


def test_only_the_messages_whose_bytes_were_taken_are_done() -> None:
    desk = GroupDesk()
    member = desk.join(encoding=HERALD)
    desk.send("a")
    member.take()
    desk.send("b")
    desk.wait(GROUP_POLL_SECONDS)
    assert (desk.position, desk.unacked) == (1, 1)
    member.close()
    assert desk.join().read() == "b"


def test_a_member_that_leaves_is_asked_what_it_has_taken() -> None:
    desk = GroupDesk()
    member, other = desk.join(encoding=HERALD), desk.join()
    other.link.congested = True
    desk.send("a b")
    member.take()
    member.close()
    other.drain()
    assert (desk.position, other.read()) == (2, "")


def test_a_full_member_is_asked_sooner_also_if_a_later_poll_was_planned() -> None:
    desk = GroupDesk(unacked_max=4)
    member = desk.join(encoding=HERALD)
    desk.send("a b")
    desk.send("c d e")
    assert member.read() == "a b c d"
    member.take()
    desk.wait(GROUP_POLL_FULL_SECONDS)
    assert member.read() == "e"
    assert desk.position == 4


def test_a_member_without_room_gets_what_follows_when_it_has_taken_half() -> None:
    desk = GroupDesk(unacked_max=4)
    member = desk.join(encoding=HERALD)
    for word in "abcdef":
        desk.send(word)
    assert member.read() == "a b c d"
    sizes = member.link.written // 4  # type: ignore[operator]
    member.link.taken = sizes  # type: ignore[attr-defined]
    desk.wait(GROUP_POLL_FULL_SECONDS)
    assert (member.read(), desk.unacked) == ("", 3)
    member.link.taken = 2 * sizes  # type: ignore[attr-defined]
    desk.wait(GROUP_POLL_SECONDS)
    assert member.read() == "e f"


def test_polls_end_when_nothing_is_awaited() -> None:
    desk = GroupDesk()
    member = desk.join(encoding=HERALD)
    desk.send("a")
    member.take()
    for _ in range(3):
        desk.wait(1)
    assert desk.broker.timers.run_due() is None


def test_where_a_transport_cannot_tell_what_the_own_system_has_taken_is_done() -> None:
    desk = GroupDesk()
    client = desk.join(encoding=HERALD, acknowledges=False)
    client.link.buffered = 1
    desk.send("a")
    desk.wait(GROUP_POLL_SECONDS)
    assert desk.unacked == 1
    client.link.buffered = 0
    desk.wait(GROUP_POLL_SECONDS)
    assert desk.unacked == 0


def test_a_late_client_without_answers_is_in_time_when_it_has_taken_all() -> None:
    desk = GroupDesk(ack_wait_seconds=10, unacked_max=4)
    late, other = desk.join(encoding=HERALD), desk.join()
    desk.send("a b")
    assert (late.read(), other.read()) == ("a", "b")
    other.answer("b")
    desk.wait(10.2)
    assert other.read() == "a"
    other.answer("a")
    desk.send("c")
    assert (late.read(), other.read()) == ("", "c"), "it has not taken what it was sent"
    late.take()
    desk.wait(0.2)
    desk.send("d")
    assert (late.read(), other.read()) == ("d", "")
