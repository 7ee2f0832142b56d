"""Dead letters: what a group could not process is written to a topic, with the reason."""

from collections.abc import Callable

import pytest

from penstock.core.quotas import Quota, QuotaLimits
from penstock.errors import LogUnavailable
from penstock.limits import (
    GROUP_DEAD_BYTES_PER_SECOND_MAX,
    GROUP_DEAD_PER_SECOND_MAX,
    GROUP_READ_RETRY_SECONDS,
)
from penstock.model import Form, Kind
from penstock.ports import Fetched
from tests.support.group_desk import LAMAMQ, GroupClient, GroupDesk
from tests.support.publishes import publish


def failed(**settings: float) -> tuple[GroupDesk, GroupClient]:
    """A group whose member has refused a message for the last time."""
    desk = GroupDesk(deliveries_max=1, **settings)
    member = desk.join()
    desk.send("a b")
    assert member.read() == "a b"
    return desk, member


def offsets(desk: GroupDesk) -> list[int]:
    return [int(dict(each.headers)["penstock-dead-offset"]) for each in desk.log.records]


def test_a_message_is_dead_when_its_letter_is_safe() -> None:
    desk, member = failed()
    member.answer("a b", failure="no")
    assert offsets(desk) == [0], "they are written one after the other"
    assert desk.unacked == 2
    desk.log.commit()
    desk.run()
    assert offsets(desk) == [0, 1]
    assert desk.unacked == 1
    desk.log.commit()
    assert desk.unacked == 0
    desk.wait(1)
    progress = desk.store.states["g"].progress
    assert progress is not None
    assert progress.dead == (0, 1)


def test_a_letter_whose_commit_fails_is_written_again_after_a_while() -> None:
    desk, member = failed()
    member.answer("a", failure="no")
    desk.log.fail()
    desk.wait(GROUP_READ_RETRY_SECONDS / 2)
    assert offsets(desk) == [0]
    desk.wait(GROUP_READ_RETRY_SECONDS / 2)
    assert offsets(desk) == [0, 0]
    desk.log.commit()
    assert desk.unacked == 1


@pytest.mark.parametrize("part", ["the log", "reads"])
def test_a_letter_that_cannot_be_written_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    desk, member = failed()
    if part == "the log":
        desk.log.available = False
    else:
        monkeypatch.setattr(desk.log, "_find", lambda *_: LogUnavailable("input/output error"))
    member.answer("a", failure="no")
    assert offsets(desk) == []
    desk.log.available = True
    monkeypatch.undo()
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert offsets(desk) == [0]


@pytest.mark.parametrize(
    "lose",
    [lambda desk: desk.log.forget(2), lambda desk: desk.log.damage(desk.log.kept[0])],
    ids=["gone", "damaged"],
)
def test_a_message_that_cannot_be_read_any_more_has_no_letter(
    lose: Callable[[GroupDesk], None],
) -> None:
    desk, member = failed()
    lose(desk)
    member.answer("a", failure="no")
    assert offsets(desk) == []
    assert desk.unacked == 1
    desk.wait(1)
    assert desk.store.states["g"].lost == 1
    desk.send("c")
    assert member.read() == "c"


def test_a_message_whose_row_group_has_expired_has_no_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, member = failed()
    desk.send("c")
    assert member.read() == "c"
    monkeypatch.setattr(desk.log, "_find", lambda *_: Fetched(desk.log.kept[1:], 3))
    member.answer("a b", failure="no")
    member.answer("c", failure="no")
    assert offsets(desk) == [2]
    desk.wait(1)
    assert desk.store.states["g"].lost == 2


def test_a_reset_ends_letters_that_are_being_written() -> None:
    desk, member = failed()
    groups = desk.groups
    assert groups.acknowledgments.answered(member.session, member.ids["a"], "no")
    groups.reset("g", {0: 1}, lambda _: None)
    desk.run()
    assert offsets(desk) == []
    assert member.read() == "b"
    member.answer("b", failure="no")
    assert offsets(desk) == [1]


def test_there_is_room_for_another_message_when_a_letter_is_written() -> None:
    desk = GroupDesk(deliveries_max=1, unacked_max=1)
    member = desk.join()
    desk.send("a b")
    assert member.read() == "a"
    member.answer("a", failure="no")
    assert member.read() == ""
    desk.log.commit()
    desk.run()
    assert member.read() == "b"


def test_a_group_that_reads_all_topics_does_not_read_its_own_dead_letters() -> None:
    desk = GroupDesk()
    member, other = desk.join("#@group=g"), desk.join("#@group=h")
    desk.send_from_lamamq(b"x", topic="dead/g")
    desk.send_from_lamamq(b"y", topic="dead/h")
    assert (member.read(), other.read()) == ("y", "x")


def test_a_letter_has_the_protocol_the_value_and_the_headers_of_its_message() -> None:
    headers = (("h", b"1"), ("k", b""))
    desk = GroupDesk(deliveries_max=1)
    member = desk.join("#@group=g")
    frame = publish(LAMAMQ.protocol, "big", topic="a/b", value=b"{}", headers=headers)
    desk.send_lamamq_frames(frame)
    member.answer(member.read(), failure="no")
    (record,) = desk.log.records
    assert (record.topic, record.value, record.kind) == ("dead/g", b"{}", Kind.PUBLISH)
    assert record.protocol is LAMAMQ.protocol
    assert record.headers == (
        ("penstock-dead-reason", b"no"),
        ("penstock-dead-deliveries", b"1"),
        ("penstock-dead-topic", b"a/b"),
        ("penstock-dead-partition", b"0"),
        ("penstock-dead-offset", b"0"),
        ("h", b"1"),
        ("k", b""),
    )


def test_a_letter_of_a_protocol_without_headers_is_one_of_a_protocol_with_them() -> None:
    desk, member = failed()
    member.answer("b", failure="no")
    (record,) = desk.log.records
    assert record.protocol.carries.headers
    assert (record.value, record.form) == (b"b", Form.PLAIN)


def test_a_letter_of_another_partition_names_it() -> None:
    desk = GroupDesk(deliveries_max=1)
    desk.second_partition()
    member = desk.join()
    desk.send_elsewhere("x y")
    assert member.read() == "x y"
    member.answer("y", failure="no")
    headers = dict(desk.log.records[0].headers)
    assert (headers["penstock-dead-partition"], headers["penstock-dead-offset"]) == (b"1", b"1")


# --- Limits ---------------------------------------------------------------------------------------


def refused(desk: GroupDesk, *members: GroupClient) -> None:
    """Refuse all messages that members have, for the last time."""
    for client in members:
        for member in client.session.memberships.values():
            desk.groups.acknowledgments.acknowledge(member, range(1, member.delivered + 1), "no")
    settle(desk)


def settle(desk: GroupDesk) -> None:
    """Commit dead letters until no further one comes."""
    count = -1
    while len(desk.log.records) != count:
        count = len(desk.log.records)
        desk.run()
        desk.log.commit()
        desk.run()


def test_dead_letters_of_one_owner_are_written_at_a_limited_rate() -> None:
    desk = GroupDesk(deliveries_max=1)
    first, second = desk.join("channel/1@group=g"), desk.join("channel/1@group=h")
    desk.send(" ".join("x" * GROUP_DEAD_PER_SECOND_MAX))
    refused(desk, first, second)
    assert len(desk.log.records) == GROUP_DEAD_PER_SECOND_MAX
    topics = {each.topic for each in desk.log.records}
    assert topics == {"dead/g", "dead/h"}, "groups take turns"
    assert desk.unacked == GROUP_DEAD_PER_SECOND_MAX / 2
    desk.clock.seconds += 0.1
    settle(desk)
    assert len(desk.log.records) == GROUP_DEAD_PER_SECOND_MAX * 11 // 10
    desk.clock.seconds += 0.9
    settle(desk)
    assert len(desk.log.records) == 2 * GROUP_DEAD_PER_SECOND_MAX
    assert desk.unacked == 0


def test_dead_letters_of_another_owner_do_not_wait() -> None:
    desk = GroupDesk(deliveries_max=1)
    first = desk.join("channel/1@group=g")
    desk.send(" ".join("x" * 2 * GROUP_DEAD_PER_SECOND_MAX))
    refused(desk, first)
    other = desk.open()
    other.session.topic_owner = "another"
    desk.groups.open("h", lambda: None)
    desk.broker.subscribe(other.session, "channel/1@group=h")
    desk.run()
    desk.send("y")
    refused(desk, other)
    assert len(desk.log.records) == GROUP_DEAD_PER_SECOND_MAX + 1
    assert desk.log.records[-1].topic == "dead/h"


def test_bytes_of_dead_letters_are_limited() -> None:
    desk = GroupDesk(deliveries_max=1)
    member = desk.join()
    size = GROUP_DEAD_BYTES_PER_SECOND_MAX
    desk.send_from_lamamq(*(bytes(size) for _ in range(3)))
    desk.wait(0)
    refused(desk, member)
    assert offsets(desk) == [0]
    desk.wait(0.5)
    settle(desk)
    assert offsets(desk) == [0, 1]
    desk.wait(1.1)
    settle(desk)
    assert offsets(desk) == [0, 1, 2]


def test_dead_letters_wait_while_the_owner_of_the_group_has_no_room_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    desk, member = failed()
    quota = Quota("panel")
    quota.set_limits(QuotaLimits(stored_bytes_max=1), 0.0)
    quota.stored = desk.broker.stored.of("panel")
    owners: list[str] = []

    def quota_of(owner: str) -> Quota:
        owners.append(owner)
        return quota

    desk.broker.quota_of = quota_of
    refused(desk, member)
    assert offsets(desk) == [0], "there was room for the first one"
    assert set(owners) == {member.session.topic_owner}
    assert quota.stored.size > len(b"a")
    assert quota.is_full
    assert quota.reached["stored_bytes"] == 1
    assert "dead letters wait" in capsys.readouterr().out
    desk.wait(10 * GROUP_READ_RETRY_SECONDS)
    settle(desk)
    assert offsets(desk) == [0]
    assert desk.unacked == 1, "nothing is lost"
    quota.set_limits(QuotaLimits(), 0.0)
    desk.wait(GROUP_READ_RETRY_SECONDS)
    settle(desk)
    assert offsets(desk) == [0, 1]
    assert desk.unacked == 0


def test_the_dead_letters_of_a_stored_group_are_charged_to_its_owner() -> None:
    desk, member = failed()
    desk.wait(1)
    owner = member.session.topic_owner
    assert desk.store.states["g"].owner == owner
    again = desk.restarted()
    owners: list[str] = []
    again.broker.quota_of = owners.append  # type: ignore[assignment]
    other = again.open()
    other.session.topic_owner = "another"
    again.groups.open("g", lambda: None)
    again.broker.subscribe(other.session, "channel/+@group=g")
    again.run()
    assert other.read() == "a b"
    refused(again, other)
    assert set(owners) == {owner}


def test_dead_letters_of_many_groups_are_written_when_there_is_room_in_the_log() -> None:
    desk = GroupDesk(deliveries_max=1)
    member = desk.open()
    for number in range(400):
        desk.groups.open(f"g{number}", lambda: None)
        desk.broker.subscribe(member.session, f"channel/1@group=g{number}")
        desk.run()
    desk.send("a")
    desk.wait(1)
    quota = Quota("panel")
    quota.set_limits(QuotaLimits(stored_bytes_max=1), 0.0)
    quota.stored = desk.broker.stored.of("panel")
    quota.stored.add(0, 1)
    desk.broker.quota_of = lambda _: quota
    refused(desk, member)
    assert desk.log.records == []
    quota.set_limits(QuotaLimits(), 0.0)
    for _ in range(6):
        desk.wait(GROUP_READ_RETRY_SECONDS)
        settle(desk)
    assert len(desk.log.records) == 400
