"""Which member of a consumer group gets which message, and when."""

import pytest
import structlog

from penstock.core.audiences import Encoding
from penstock.core.groups import delivery as group_delivery
from penstock.core.groups.group import Group, Member, TopicOwners, hash_of
from penstock.errors import LogUnavailable
from penstock.limits import (
    GROUP_FETCHES_MAX,
    GROUP_LEASE_BYTES,
    GROUP_MESSAGE_BYTES,
    GROUP_READ_RETRY_SECONDS,
    GROUP_ROW_GROUPS_MAX,
)
from penstock.memory import Purpose
from penstock.positions import TIMESTAMP
from penstock.protocols.herald import HERALD_PAYLOAD_BYTES_MAX
from penstock.wire import herald
from tests.support.group_desk import HERALD, LAMAMQ, AcknowledgingLink, GroupClient, GroupDesk
from tests.support.kept_log import KeptRows

LETTERS = "a b c d e f g h i j k l"


def places(payload: bytes) -> herald.Message:
    return herald.Message(0, TIMESTAMP, payload)


def group_of(client: GroupClient, name: str = "g") -> Group:
    return member_of(client, name).group


def member_of(client: GroupClient, name: str = "g") -> Member:
    member: Member = client.session.memberships[name]
    return member


# --- Shares ---------------------------------------------------------------------------------------


def test_a_member_gets_more_when_it_has_half_of_what_it_may_have() -> None:
    desk = GroupDesk(unacked_max=8)
    member = desk.join()
    desk.send(LETTERS)
    assert member.read() == "a b c d e f g h"
    member.answer("a b c")
    assert member.read() == "", "each run has a price: one for each answer would be too many"
    member.answer("d")
    assert member.read() == "i j k l"
    assert (desk.position, desk.unacked) == (4, 8)


def test_members_share_what_may_be_unacknowledged() -> None:
    desk = GroupDesk(unacked_max=5)
    first, second = desk.join(), desk.join()
    desk.send(LETTERS)
    assert (first.read(), second.read()) == ("a b", "c d"), "two each: a half of five"
    second.answer("c d")
    assert (first.read(), second.read()) == ("", "e f")
    second.close()
    assert first.read() == "e f g", "it may have all five now"


def test_each_member_may_have_one_message_if_there_are_more_members_than_messages() -> None:
    desk = GroupDesk(unacked_max=2)
    members = [desk.join() for _ in range(3)]
    desk.send("a b c d")
    assert [member.read() for member in members] == ["a", "b", ""]
    members[0].answer("a")
    assert [member.read() for member in members] == ["", "", "c"]


def test_a_short_row_group_is_for_all_members() -> None:
    desk = GroupDesk()
    first, second, third = desk.join(), desk.join(), desk.join()
    desk.send("a b c d e f g")
    assert (first.read(), second.read(), third.read()) == ("a b c", "d e f", "g")


def test_the_member_with_the_fewest_messages_comes_first_then_the_one_that_waited_longest() -> None:
    desk = GroupDesk()
    first, second = desk.join(), desk.join()
    desk.send("a")
    desk.send("b")
    assert (first.read(), second.read()) == ("a", "b")
    second.answer("b")
    desk.send("c")
    assert (first.read(), second.read()) == ("", "c"), "the first one still has a message"
    second.answer("c")
    first.answer("a")
    desk.send("d")
    assert (first.read(), second.read()) == ("d", ""), "both have none, the second got one later"


def test_messages_that_wait_count_as_unacknowledged() -> None:
    desk = GroupDesk(unacked_max=2, deliveries_max=9)
    member = desk.join()
    desk.send("a b c")
    assert member.read() == "a b"
    member.link.congested = True
    member.answer("a", failure="no")
    member.answer("b", failure="no")
    assert desk.unacked == 2
    member.drain()
    assert member.read() == "a b", "they come again before new ones"
    member.answer("a b")
    assert member.read() == "c"


def test_a_congested_member_gets_nothing_until_it_has_read() -> None:
    desk = GroupDesk()
    slow, quick = desk.join(), desk.join()
    slow.link.congested = True
    desk.send("a b c")
    assert (slow.read(), quick.read()) == ("", "a b c")
    quick.close()
    assert slow.read() == ""
    slow.drain()
    assert slow.read() == "a b c"


def test_a_member_that_is_late_gets_messages_only_if_no_other_can() -> None:
    desk = GroupDesk(ack_wait_seconds=10, unacked_max=4)
    late, other = desk.join(), desk.join()
    desk.send("a b")
    assert (late.read(), other.read()) == ("a", "b")
    other.answer("b")
    desk.wait(10.2)
    assert (late.read(), other.read()) == ("", "a")
    desk.send("c")
    assert (late.read(), other.read()) == ("", "c"), "it has answered nothing since"
    desk.send("d")
    assert (late.read(), other.read()) == ("d", ""), "the other one has all that it may have"
    late.answer("d")
    other.answer("a c")
    desk.send("e f")
    assert {late.read(), other.read()} == {"e", "f"}, "it is in time again"


def test_a_slow_member_keeps_the_messages_that_it_works_through() -> None:
    """It needs more than the time for a message for all of them together."""
    desk = GroupDesk(ack_wait_seconds=10, deliveries_max=1)
    slow = desk.join()
    desk.send(LETTERS)
    assert slow.read() == LETTERS
    for letter in LETTERS.split():
        desk.wait(9)
        slow.answer(letter)
    assert slow.read() == "", "none came again"
    assert (desk.unacked, desk.position) == (0, 12)


def test_bytes_that_are_acknowledged_slowly_are_not_sent_again() -> None:
    desk = GroupDesk(ack_wait_seconds=10, deliveries_max=1)
    slow = desk.join(encoding=HERALD)
    for letter in LETTERS.split():
        desk.send(letter)
    assert isinstance(slow.link, AcknowledgingLink)
    for _ in LETTERS.split():
        slow.link.taken += slow.link.written // 12  # type: ignore[operator]
        desk.wait(9)
    assert slow.read() == LETTERS, "none came again"
    assert desk.unacked == 0


def test_messages_behind_positions_are_done_with_their_last_byte() -> None:
    desk = GroupDesk(ack_wait_seconds=10)
    member = desk.join(encoding=HERALD)
    link = member.link
    assert isinstance(link, AcknowledgingLink)
    desk.broker.give_positions(member.session, lambda payload: herald.encode(places(payload)))
    link.chunks.clear()
    ends: list[int] = []
    for letters in ("a b", "c"):
        desk.send(letters)
        ends.append(link.written)  # type: ignore[arg-type]
    assert len(link.chunks) == 4, "positions, a and b, positions, c"
    for taken, unacked in ((ends[0] - 1, 3), (ends[0], 1), (ends[1] - 1, 1), (ends[1], 0)):
        link.taken = taken
        desk.wait(0.3)
        assert desk.unacked == unacked


def test_a_group_whose_only_member_is_late_goes_on() -> None:
    desk = GroupDesk(ack_wait_seconds=10)
    late = desk.join()
    desk.send("a")
    assert late.read() == "a"
    desk.wait(10.2)
    assert late.read() == "a"


# --- Memory ---------------------------------------------------------------------------------------


def test_a_member_draws_the_memory_of_its_messages() -> None:
    desk = GroupDesk()
    member = desk.join("channel/1@group=g")
    account = member.link.account
    desk.send("a b c")
    desk.send("d")
    assert member.read() == "a b c d"
    assert account.size(Purpose.GROUPS) == 2 * GROUP_LEASE_BYTES + 4 * GROUP_MESSAGE_BYTES
    member.answer("a b c d")
    desk.send("e")
    assert account.size(Purpose.GROUPS) == GROUP_LEASE_BYTES + GROUP_MESSAGE_BYTES
    desk.groups.open("h", lambda: None)
    desk.broker.subscribe(member.session, "channel/2@group=h")
    desk.run()
    desk.send("x y", channel=2)
    assert member.read() == "e x y"
    both = 2 * GROUP_LEASE_BYTES + 3 * GROUP_MESSAGE_BYTES
    assert account.size(Purpose.GROUPS) == both, "it is that of all its groups"


@pytest.mark.parametrize("again", [False, True])
def test_messages_wait_for_memory(monkeypatch: pytest.MonkeyPatch, *, again: bool) -> None:
    desk = GroupDesk()
    member = desk.join()
    if again:
        desk.send("a b")
        assert member.read() == "a b"
    monkeypatch.setattr(Member, "hold_memory", lambda *_: False)
    if again:
        member.answer("a b", failure="no")
    else:
        desk.send("a b")
    assert member.read() == ""
    monkeypatch.undo()
    desk.wait(GROUP_READ_RETRY_SECONDS / 2)
    desk.send("c")
    assert member.read() == "", "it is tried after a while, not for each new message"
    desk.wait(GROUP_READ_RETRY_SECONDS / 2)
    assert member.read() == "a b c"


def test_a_member_of_an_ordered_group_without_memory_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = GroupDesk()
    first, second = (desk.join("channel/+@group=g,ordered=topic") for _ in range(2))
    one, two = channels_of(first, second)
    real = Member.hold_memory
    poor = member_of(first)
    monkeypatch.setattr(
        Member, "hold_memory", lambda self, added=0: self is not poor and real(self, added)
    )
    desk.send_mixed(f"{one}:a {two}:b {one}:c {two}:d")
    assert (first.read(), second.read()) == ("", "b d")
    monkeypatch.undo()
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert (first.read(), second.read()) == ("a c", "")


# --- Ordered groups -------------------------------------------------------------------------------


def channels_of(*clients: GroupClient) -> list[int]:
    """A channel of each member of an ordered group."""
    numbers = [member_of(client).number for client in clients]
    found: dict[int, int] = {}
    for channel in range(255, -1, -1):
        owner = max(numbers, key=lambda number: hash_of(f"channel/{channel}", number))
        found[owner] = channel
    return [found[number] for number in numbers]


def test_an_ordered_group_gives_out_what_comes_before_a_message_without_room() -> None:
    desk = GroupDesk(unacked_max=4)
    first, second = (desk.join("channel/+@group=g,ordered=topic") for _ in range(2))
    one, two = channels_of(first, second)
    desk.send_mixed(f"{one}:a {one}:b {one}:c {two}:d")
    assert (first.read(), second.read()) == ("a b", ""), "d is behind c, which has no room"
    assert desk.unacked == 2
    first.answer("a b")
    assert (first.read(), second.read()) == ("c", "d")


def test_an_ordered_group_stops_at_the_first_message_whose_member_has_no_room() -> None:
    desk = GroupDesk(unacked_max=4)
    first, second = (desk.join("channel/+@group=g,ordered=topic") for _ in range(2))
    one, two = channels_of(first, second)
    desk.send_mixed(f"{one}:a {one}:b {two}:c {one}:d {two}:e {one}:f")
    assert (first.read(), second.read()) == ("a b", "c"), "nothing overtakes the third of the first"
    first.answer("a")
    assert (first.read(), second.read()) == ("d", "e")
    first.answer("b")
    assert (first.read(), second.read()) == ("f", "")


def test_a_member_that_joined_an_ordered_group_gets_its_topics_from_then_on() -> None:
    desk = GroupDesk()
    first = desk.join("channel/+@group=g,ordered=topic")
    desk.send_mixed(" ".join(f"{channel}:a{channel}" for channel in range(20)))
    first.answer(first.read())
    second = desk.join("channel/+@group=g,ordered=topic")
    one, two = channels_of(first, second)
    desk.send_mixed(f"{one}:b {two}:c")
    assert (first.read(), second.read()) == ("b", "c")
    desk.send_mixed(f"{two}:d {one}:e")
    assert (first.read(), second.read()) == ("e", "d"), "while both have messages"


def test_a_topic_moves_to_a_new_member_when_nobody_has_a_message() -> None:
    desk = GroupDesk()
    first = desk.join("channel/+@group=g,ordered=topic")
    desk.send("a", channel=1)
    second = desk.join("channel/+@group=g,ordered=topic")
    one, two = channels_of(first, second)
    desk.send_mixed(f"{one}:b {two}:c")
    assert (first.read(), second.read()) == ("a", ""), "messages of the first may be of any topic"
    first.answer("a")
    assert (first.read(), second.read()) == ("b", "c")


@pytest.mark.parametrize("encoding", [LAMAMQ, HERALD], ids=["answers", "bytes"])
def test_topics_of_a_late_member_move_when_it_has_no_messages(encoding: Encoding) -> None:
    desk = GroupDesk(ack_wait_seconds=30)
    late = desk.join("channel/+@group=g,ordered=topic", encoding=encoding)
    other = desk.join("channel/+@group=g,ordered=topic")
    (channel, _) = channels_of(late, other)
    desk.send("a b", channel=channel)
    desk.wait(25)
    desk.send("c d", channel=channel)
    assert late.read() == "a b c d"
    desk.wait(5.2)
    desk.send("e", channel=channel)
    assert (late.read(), other.read()) == ("", ""), "the late one may still be at work on c"
    desk.wait(25)
    assert (late.read(), other.read()) == ("", "a b c d e")


@pytest.mark.parametrize("encoding", [LAMAMQ, HERALD], ids=["answers", "bytes"])
def test_topics_of_a_member_that_is_in_time_again_move_when_others_have_no_messages(
    encoding: Encoding,
) -> None:
    desk = GroupDesk(ack_wait_seconds=10)
    late = desk.join("channel/+@group=g,ordered=topic", encoding=encoding)
    other = desk.join("channel/+@group=g,ordered=topic")
    channels = channels_of(late, other)
    desk.send("a", channel=channels[0])
    assert late.read() == "a"
    desk.wait(10.2)
    assert other.read() == "a"
    if encoding is HERALD:
        late.take()
    else:
        desk.groups.acknowledgments.is_in_time(member_of(late))
    desk.wait(1)
    assert not member_of(late).is_late
    desk.send("b", channel=channels[0])
    assert (late.read(), other.read()) == ("", "")
    other.answer("a")
    assert (late.read(), other.read()) == ("b", "")


def test_an_ordered_group_goes_on_when_a_late_member_acknowledges_before_its_topics_move() -> None:
    desk = GroupDesk(ack_wait_seconds=30, deliveries_max=9)
    late, other = (desk.join("channel/+@group=g,ordered=topic") for _ in range(2))
    channels = channels_of(late, other)
    desk.send("a", channel=channels[0])
    desk.wait(25)
    desk.send("b c", channel=channels[0])
    assert late.read() == "a b c"
    desk.wait(5.2)
    desk.send("x", channel=channels[1])
    assert (late.read(), other.read()) == ("", "")
    late.answer("b")
    assert (late.read(), other.read()) == ("a", "x"), "no topic moves, so nothing has to end first"


def test_an_ordered_group_whose_only_member_is_late_goes_on() -> None:
    desk = GroupDesk(ack_wait_seconds=30)
    late = desk.join("channel/+@group=g,ordered=topic")
    desk.send("a")
    desk.wait(25)
    desk.send("b")
    assert late.read() == "a b"
    desk.wait(5.2)
    desk.send("c")
    assert late.read() == "a c"


def test_a_member_that_leaves_moves_only_its_own_topics() -> None:
    desk = GroupDesk()
    members = [desk.join("channel/+@group=g,ordered=topic") for _ in range(3)]
    channels = channels_of(*members)
    desk.send_mixed(" ".join(f"{channel}:a{channel}" for channel in channels))
    assert [member.read() for member in members] == [f"a{channel}" for channel in channels]
    members[1].close()
    desk.send_mixed(" ".join(f"{channel}:b{channel}" for channel in channels))
    got = {members[0].read(), members[2].read()}
    moved = f"a{channels[1]} b{channels[1]}"
    assert got in (
        {f"b{channels[0]} {moved}", f"b{channels[2]}"},
        {f"b{channels[0]}", f"b{channels[2]} {moved}"},
        {f"a{channels[1]} b{channels[0]} b{channels[1]}", f"b{channels[2]}"},
        {f"b{channels[0]}", f"a{channels[1]} b{channels[1]} b{channels[2]}"},
    )


def test_what_a_member_of_an_ordered_group_failed_comes_to_it_again() -> None:
    desk = GroupDesk(deliveries_max=9)
    first, second = (desk.join("channel/+@group=g,ordered=topic") for _ in range(2))
    one, two = channels_of(first, second)
    desk.send_mixed(f"{one}:a {two}:b")
    assert (first.read(), second.read()) == ("a", "b")
    first.answer("a", failure="no")
    assert (first.read(), second.read()) == ("a", "")
    first.link.congested = True
    first.answer("a", failure="no")
    assert (first.read(), second.read()) == ("", ""), "it waits for its member"
    first.drain()
    assert (first.read(), second.read()) == ("a", "")


def test_what_members_of_an_ordered_group_have_failed_goes_to_the_member_of_each_topic() -> None:
    desk = GroupDesk(deliveries_max=9)
    desk.send("0")  # so that rows and offsets differ
    first, second = (desk.join("channel/+@group=g,ordered=topic") for _ in range(2))
    one, two = channels_of(first, second)
    desk.send_mixed(f"{one}:a {two}:b {one}:c {two}:d")
    assert (first.read(), second.read()) == ("a c", "b d")
    first.link.congested = second.link.congested = True
    first.answer("a c", failure="no")
    second.answer("b d", failure="no")
    first.drain()
    second.drain()
    assert (first.read(), second.read()) == ("a c", "b d")


def test_members_of_topics_are_found_again_when_members_change_or_topics_were_removed() -> None:
    desk = GroupDesk()
    clients = [desk.join("channel/+@group=g,ordered=topic") for _ in range(2)]
    first, second = map(member_of, clients)
    owners = TopicOwners(first.group)
    owners.reset([first, second], 0)
    owners.place(3, name="a", is_read=True)
    owners.place(5, name="b", is_read=False)
    owner = owners.owner(3)
    assert owner in {first, second}
    assert owners.owner(5) is None
    assert list(owners.slot_of_topic) == [0, 0, 0, 2 + [first, second].index(owner), 0, 1]
    owners.reset([first, second], 0)
    assert owners.owner(3) is owner, "nothing has changed"
    owners.reset([first, second], 1)
    assert not owners.slot_of_topic, "a number may be that of another topic now"
    owners.place(3, name="a", is_read=True)
    owners.reset([second], 1)
    assert not owners.slot_of_topic
    owners.place(3, name="a", is_read=True)
    assert owners.owner(3) is second


# --- Figures --------------------------------------------------------------------------------------


def test_messages_to_members_are_counted() -> None:
    desk = GroupDesk()
    member = desk.join()
    counters = desk.broker.counters
    desk.send("a b")
    assert counters.messages_sent[LAMAMQ.protocol] == 2
    assert counters.bytes_sent[LAMAMQ.protocol] == sum(map(len, member.link.written))


def test_messages_that_expired_before_a_group_read_them_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def expired(*_: object, first: int, last: int) -> int:
        seen.append((first, last))
        return 1

    desk = GroupDesk(unacked_max=2)
    desk.send("0")
    member = desk.join()
    monkeypatch.setattr(KeptRows, "expired", expired)
    desk.send("a b c d")
    assert member.read() == "a b"
    member.answer("a b")
    assert seen == [(0, 2), (2, 3), (3, 4)], "each row that was passed over is looked at once"
    desk.wait(1)
    assert desk.store.states["g"].lost == 3


# --- What a protocol cannot carry -----------------------------------------------------------------


def test_a_message_that_the_protocol_of_no_member_carries_is_dead() -> None:
    desk = GroupDesk(deliveries_max=2)
    member = desk.join(encoding=HERALD)
    long = bytes(HERALD_PAYLOAD_BYTES_MAX - 8)
    undeliverable = desk.broker.counters.messages_undeliverable
    desk.send_from_lamamq(b"a", long, b"b", long)
    assert member.read() == "a b"
    assert undeliverable[HERALD.protocol] == 4, "two messages, twice each"
    for _ in range(2):  # they are written one after the other
        desk.wait(0.2)
        desk.log.commit()
    dead = [dict(each.headers) for each in desk.log.records]
    assert [each["penstock-dead-offset"] for each in dead] == [b"1", b"3"]
    assert {each["penstock-dead-reason"] for each in dead} == {b"herald cannot carry it"}
    assert {each["penstock-dead-deliveries"] for each in dead} == {b"2"}
    member.take()
    desk.wait(0.3)
    assert desk.unacked == 0


def test_a_message_that_a_member_cannot_carry_goes_to_one_that_can() -> None:
    desk = GroupDesk(deliveries_max=2, unacked_max=20)
    idle, busy = desk.join(encoding=HERALD), desk.join()
    long = bytes(HERALD_PAYLOAD_BYTES_MAX - 8)
    desk.send("a b c d")
    assert (idle.read(), busy.read()) == ("a b", "c d")
    idle.take()
    desk.wait(0.1)
    desk.send_from_lamamq(long, b"e")
    assert (idle.read(), busy.read()) == ("e", long.decode())
    assert desk.broker.counters.messages_undeliverable[HERALD.protocol] == 0
    assert desk.log.records == []


def test_a_message_waits_for_the_member_that_can_carry_it_and_others_do_not() -> None:
    desk = GroupDesk(deliveries_max=2, unacked_max=4)
    idle, busy = desk.join(encoding=HERALD), desk.join()
    long = bytes(HERALD_PAYLOAD_BYTES_MAX - 8)
    desk.send("a b c d")
    assert (idle.read(), busy.read()) == ("a b", "c d")
    idle.take()
    desk.wait(0.1)
    desk.send_from_lamamq(long)
    desk.send("e")
    assert (idle.read(), busy.read()) == ("e", "")
    assert (desk.unacked, desk.position) == (4, 2)
    desk.wait(0.3)
    progress = desk.store.states["g"].progress
    assert progress is not None
    assert (4, 1, 0) in [(run.first, run.size, run.failures) for run in progress.pending]
    busy.answer("c d")
    assert busy.read() == ""
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert busy.read() == long.decode()
    assert desk.log.records == []


def test_a_message_is_dead_when_the_only_member_that_could_carry_it_has_left() -> None:
    desk = GroupDesk(deliveries_max=2, unacked_max=4)
    idle, busy = desk.join(encoding=HERALD), desk.join()
    desk.send("a b c d")
    assert (idle.read(), busy.read()) == ("a b", "c d")
    idle.take()
    desk.wait(0.1)
    desk.send_from_lamamq(bytes(HERALD_PAYLOAD_BYTES_MAX - 8))
    busy.leave()
    assert idle.read() == "c d"
    desk.wait(GROUP_READ_RETRY_SECONDS)
    desk.wait(0.2)
    (dead,) = [dict(each.headers) for each in desk.log.records]
    assert dead["penstock-dead-reason"] == b"herald cannot carry it"


# --- Reading --------------------------------------------------------------------------------------


def test_a_group_goes_on_behind_what_is_gone_and_counts_it() -> None:
    desk = GroupDesk(unacked_max=2)
    member = desk.join()
    for text in ("a b", "c d", "e f", "g h"):
        desk.send(text)
    assert member.read() == "a b"
    desk.log.forget(5)
    desk.log.kept = [rows for rows in desk.log.kept if rows.base_offset != 2]
    with structlog.testing.capture_logs() as logged:
        group_of(member).fetched = group_of(member).ahead = None
        member.answer("a b")
    assert member.read() == "g h"
    assert [(each["event"], each["messages"]) for each in logged][:1] == [("history overtaken", 3)]


def test_rows_that_cannot_be_read_are_passed_over() -> None:
    desk = GroupDesk(unacked_max=2)
    member = desk.join()
    desk.send("a b")
    desk.send("c d e", commits=False)
    desk.log.commit()
    desk.log.damage(desk.log.kept[-1])
    desk.run()
    desk.send("f")
    assert member.read() == "a b"
    with structlog.testing.capture_logs() as logged:
        member.answer("a b")
    assert member.read() == "f"
    assert [(each["event"], each["messages"]) for each in logged] == [("history unreadable", 3)]
    desk.wait(0.3)
    assert desk.store.states["g"].lost == 3
    member.answer("f")
    desk.wait(0.3)
    assert desk.store.states["g"].lost == 0, "a store has what was lost since the one before it"


def test_commits_that_failed_leave_a_gap_that_is_no_loss() -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.send("a")
    desk.send("b", commits=False)
    desk.log.fail()
    desk.send("c")
    assert member.read() == "a c"
    member.answer("a c")
    desk.wait(0.3)
    assert desk.store.states["g"].lost == 0
    assert desk.position == 3


def test_a_read_that_fails_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = GroupDesk()
    desk.second_partition()
    member = desk.join()
    monkeypatch.setattr(desk.log, "_find", lambda *_: LogUnavailable("input/output error"))
    with structlog.testing.capture_logs() as logged:
        desk.send("a")
        desk.send_elsewhere("b")
    assert member.read() == "b", "other partitions are read meanwhile"
    assert [each["event"] for each in logged] == ["group cannot read"]
    monkeypatch.undo()
    desk.send("c")
    assert member.read() == ""
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert member.read() == "a c"


def test_partitions_take_turns() -> None:
    desk = GroupDesk(unacked_max=1)
    desk.second_partition()
    member = desk.join()
    desk.send("a b")
    desk.send("c")
    desk.send_elsewhere("x y")
    desk.send_elsewhere("z")
    got = []
    for _ in range(6):
        got.append(member.read())
        member.answer(got[-1])
    assert got == ["a", "b", "x", "y", "c", "z"]


def test_a_partition_that_is_found_later_is_read_from_its_first_message() -> None:
    desk = GroupDesk()
    member = desk.join()
    desk.second_partition()
    desk.send_elsewhere("x")
    assert member.read() == "x"


def test_what_follows_is_read_while_members_have_messages() -> None:
    desk = GroupDesk(unacked_max=2)
    member = desk.join()
    desk.send("a b c d", commits=False)
    desk.log.commit()
    desk.send("e f g h")
    assert member.read() == "a b"
    assert desk.log.groups_read == 2
    member.answer("a b")
    member.read()
    member.answer("c d")
    assert member.read() == "e f"
    assert desk.log.groups_read == 2, "each was read once"


def test_a_group_reads_ahead_only_in_the_partition_that_comes_next() -> None:
    desk = GroupDesk(unacked_max=2)
    other = desk.second_partition()
    member = desk.join()
    desk.send_elsewhere("x y")
    assert member.read() == "x y"
    desk.send("a b")
    desk.send("c d")
    member.answer("x y")
    assert member.read() == "a b"
    assert other.groups_read == 1
    assert desk.log.groups_read == 2


def test_reads_of_all_groups_are_bounded() -> None:
    desk = GroupDesk()
    members = [desk.join(f"channel/+@group=g{number}") for number in range(9)]
    desk.send("a", commits=False)
    desk.log.commit()
    assert len(desk.log.reads) == GROUP_FETCHES_MAX
    desk.run()
    assert [member.read() for member in members] == ["a"] * 9
    assert desk.log.fetches_most == GROUP_FETCHES_MAX


def test_row_groups_are_kept_for_some_groups_and_read_again_for_the_others() -> None:
    desk = GroupDesk(unacked_max=1)
    count = GROUP_ROW_GROUPS_MAX + 1
    members = [desk.join(f"channel/+@group=g{number}") for number in range(count)]
    desk.send("a b")
    assert [member.read() for member in members] == ["a"] * count
    assert desk.log.groups_read == count
    for member in members[1:]:
        member.answer("a")
    assert desk.log.groups_read == count, "those that came last have kept theirs"
    members[0].answer("a")
    assert desk.log.groups_read == count + 1
    assert [member.read() for member in members] == ["b"] * count


@pytest.mark.parametrize("count", [GROUP_ROW_GROUPS_MAX + GROUP_FETCHES_MAX, 40])
def test_more_groups_deliver_than_can_keep_what_they_have_read(count: int) -> None:
    """A group delivers its rows when they arrive: in its turn, others may have taken its place."""
    desk = GroupDesk()
    members = [desk.join(f"channel/+@group=g{number}") for number in range(count)]
    desk.send("a b")
    assert [member.read() for member in members] == ["a b"] * count
    assert desk.log.groups_read == count, "none was read twice"
    desk.send("c")
    assert [member.read() for member in members] == ["c"] * count


def test_groups_that_read_on_and_on_let_others_read() -> None:
    desk = GroupDesk()
    for number in range(30):
        desk.send(f"m{number}")
    members = [desk.join(f"channel/+@group=g{n},earliest", runs=False) for n in range(12)]
    desk.broker.timers.run_due()
    served = [0] * len(members)
    for _ in range(3 * len(members)):
        desk.log.answer(1)
        desk.broker.timers.run_due()
        for number, member in enumerate(members):
            served[number] += bool(member.read())
    assert min(served) > 0, served


def test_rows_are_given_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_delivery, "GROUP_PIECE_ROWS_MAX", 2)
    desk = GroupDesk()
    member = desk.join()
    desk.send("a b c d e")
    assert member.read() == "a b c d e"
    assert len(member_of(member)._leases) == 3


def test_only_the_last_piece_of_a_row_group_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """While more messages follow, a member gets runs as long as those of a lone member."""
    desk = GroupDesk()
    first, second = desk.join(), desk.join()
    monkeypatch.setattr(group_delivery, "CATCH_UP_PIECE_BYTES", 180)  # three messages
    desk.send("a b c d e f g h")
    assert (first.read(), second.read()) == ("a b c g", "d e f h")


def test_a_group_that_is_stopped_delivers_nothing_more() -> None:
    desk = GroupDesk()
    first, second = desk.join(), desk.join()
    desk.send("a b")
    assert (first.read(), second.read()) == ("a", "b")
    desk.groups.stop_delivery()
    first.close()
    desk.send("c")
    assert second.read() == ""
    state = desk.store.states
    desk.wait(0.3)
    assert [(run.first, run.failures) for run in state["g"].progress.pending] == [(1, 0), (0, 0)]  # type: ignore[union-attr]
