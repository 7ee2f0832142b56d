"""Dead letters: what a group could not process is written to a topic, with the reason."""

from collections.abc import Callable

import pytest

from penstock.errors import LogUnavailable
from penstock.limits import GROUP_READ_RETRY_SECONDS
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
