"""The memory of a group's unacknowledged messages: drawn for the owner of the group."""

import tracemalloc
from array import array
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from penstock.core.groups import GroupSettings
from penstock.core.groups.ledger import Ledger
from penstock.errors import MemoryExhausted
from penstock.limits import (
    GROUP_MEMORY_STEP_BYTES,
    GROUP_READ_RETRY_SECONDS,
    GROUP_REASON_BYTES,
    GROUP_REASON_CHARACTERS_MAX,
    GROUP_SWEEP_SECONDS,
    GROUP_UNACKED_BYTES,
    KIB,
    MIB,
)
from penstock.memory import Draw, MemoryBudget, Purpose
from tests.support.group_desk import GroupClient, GroupDesk

GROUPS = 20


def words(count: int) -> str:
    return " ".join(str(number) for number in range(count))


def held(desk: GroupDesk) -> int:
    """Bytes that groups have drawn, without those of their members."""
    return desk.broker.memory.fixed(Purpose.GROUPS)


def used_up(desk: GroupDesk, member: GroupClient) -> Draw:
    """Draw what is left of the share of a group's owner."""
    draw = desk.broker.memory.draw(Purpose.HTTP, principal=member.session.topic_owner)
    size = GROUP_MEMORY_STEP_BYTES // 4
    while True:
        try:
            draw.resize(draw.size + size)
        except MemoryExhausted:
            return draw


@pytest.mark.parametrize("deliveries_max", [1, 5])
def test_messages_that_failed_hold_memory_of_the_owner(deliveries_max: int) -> None:
    desk = GroupDesk(deliveries_max=deliveries_max, memory=MemoryBudget(64 * MIB))
    members = [desk.join(f"channel/+@group=g{number}") for number in range(GROUPS)]
    desk.send(words(50))
    for member in members:
        member.read()
        member.link.congested = True
        member.answer(words(50), failure="no")
    desk.wait(GROUP_SWEEP_SECONDS)
    assert held(desk) >= GROUPS * 50 * GROUP_UNACKED_BYTES
    owner = members[0].session.topic_owner
    assert desk.broker.memory.left()[f"principal {owner}"] == held(desk)


def test_messages_whose_dead_letters_are_not_written_hold_memory_without_members() -> None:
    desk = GroupDesk(deliveries_max=1, memory=MemoryBudget(64 * MIB))
    member = desk.join()
    desk.send(words(100))
    member.read()
    member.answer(words(100), failure="no")
    member.leave()
    desk.wait(GROUP_SWEEP_SECONDS)
    assert held(desk) >= 100 * (GROUP_UNACKED_BYTES + GROUP_REASON_BYTES)


def test_a_refusal_of_all_messages_needs_no_more_memory() -> None:
    desk = GroupDesk(memory=MemoryBudget(64 * MIB))
    member = desk.join()
    desk.send(words(100))
    member.read()
    before = held(desk)
    assert before >= 100 * GROUP_UNACKED_BYTES
    member.link.congested = True
    member.answer(words(100), failure="no")
    assert held(desk) == before


def test_a_group_without_memory_takes_no_messages_until_there_is_some() -> None:
    desk = GroupDesk(memory=MemoryBudget(4 * MIB))
    member = desk.join()
    draw = used_up(desk, member)
    with capture_logs() as events:
        desk.send("a b c")
        desk.wait(GROUP_READ_RETRY_SECONDS)
    assert member.read() == ""
    assert not member.has_left
    assert [each["event"] for each in events] == ["group waits for memory"]
    draw.release()
    desk.wait(GROUP_READ_RETRY_SECONDS)
    assert member.read() == "a b c"


def test_a_group_without_memory_delivers_again_what_failed() -> None:
    desk = GroupDesk(memory=MemoryBudget(4 * MIB))
    member = desk.join()
    desk.send("a")
    assert member.read() == "a"
    used_up(desk, member)
    desk.send(words(40))
    member.read()
    member.answer("a", failure="no")
    assert member.read() == "a"


@pytest.mark.parametrize("options", ["", ",ordered=topic"])
def test_a_group_takes_as_many_messages_as_there_is_memory_for(options: str) -> None:
    memory = MemoryBudget(256 * KIB)
    desk = GroupDesk(memory=memory)
    members = [desk.join(f"channel/+@group=g{options}") for _ in range(2)]
    for channel in range(1, 5):
        desk.send(" ".join(f"{channel}.{number}" for number in range(500)), channel=channel)
    got: list[str] = []
    for _ in range(200):
        assert desk.unacked * GROUP_UNACKED_BYTES <= held(desk) <= memory.bytes_max // 4
        for member in members:
            new = member.read()
            got += new.split()
            member.answer(new)
        desk.wait(GROUP_READ_RETRY_SECONDS)
    assert len(got) == len(set(got)) == 2000
    assert held(desk) == 0


@pytest.mark.parametrize(
    "end",
    [
        lambda desk, _: desk.groups.remove("g", lambda _: None),
        lambda desk, _: desk.groups.reset("g", {0: 100}, lambda _: None),
        lambda _, member: member.answer(words(100)),
        lambda _, member: member.leave(),
        lambda _, member: member.close(),
    ],
    ids=["removed", "reset", "acknowledged", "left", "lost"],
)
def test_a_group_gives_memory_back(end: Callable[[GroupDesk, GroupClient], object]) -> None:
    desk = GroupDesk(memory=MemoryBudget(64 * MIB))
    member = desk.join()
    desk.send(words(100))
    member.read()
    assert held(desk) > 0
    end(desk, member)
    desk.wait(GROUP_SWEEP_SECONDS)
    assert held(desk) == 0
    assert desk.broker.memory.left() == {}


def test_a_stored_group_is_not_loaded_without_memory() -> None:
    desk = GroupDesk(memory=MemoryBudget(64 * MIB))
    member = desk.join()
    desk.send(words(100))
    member.read()
    member.leave()
    desk.wait(GROUP_SWEEP_SECONDS)
    draw = used_up(desk, member)
    with pytest.raises(MemoryExhausted):
        desk.join()
    assert desk.groups.figures("g") is None
    draw.release()
    again = desk.join()
    assert again.read() == words(100)
    assert held(desk) >= 100 * GROUP_UNACKED_BYTES


# --- Reasons --------------------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["x", "é", "\N{SNOWMAN}", "\N{FACE WITH TEARS OF JOY}"])
def test_reasons_are_held_until_the_dead_letters_are_written(character: str) -> None:
    desk = GroupDesk(deliveries_max=1, memory=MemoryBudget(64 * MIB))
    member = desk.join()
    desk.send("a b")
    member.read()
    reason = character * GROUP_REASON_CHARACTERS_MAX
    before = held(desk)
    member.answer("a b", failure=reason)
    assert held(desk) >= before - GROUP_MEMORY_STEP_BYTES + 2 * reason.__sizeof__()
    for _ in range(2):
        desk.log.commit()
        desk.run()
    desk.wait(GROUP_SWEEP_SECONDS)
    assert held(desk) == 0


def test_reasons_are_left_out_without_memory_for_them() -> None:
    desk = GroupDesk(deliveries_max=1, memory=MemoryBudget(4 * MIB))
    member = desk.join()
    desk.send(words(20))
    member.read()
    used_up(desk, member)
    member.answer(words(20), failure="x" * GROUP_REASON_CHARACTERS_MAX)
    for _ in range(20):
        desk.log.commit()
        desk.run()
    reasons = {dict(each.headers)["penstock-dead-reason"] for each in desk.log.records[1:]}
    assert len(desk.log.records) == 20
    assert b"the member refused it" in reasons


# --- The ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2048, 5000, 11_000, 22_000])
@pytest.mark.parametrize("deliveries_max", [1, 5])
def test_a_message_takes_no_more_memory_than_is_drawn(count: int, deliveries_max: int) -> None:
    ledger = Ledger(0, settings=GroupSettings(deliveries_max=deliveries_max))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        lease = ledger.lease("m", 1 << 20, array("I", range(0, 2 * count, 2)), now=0.0)
        for index in range(count):
            ledger.fail(lease, index, "no")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= count * GROUP_UNACKED_BYTES


@pytest.mark.parametrize("deliveries_max", [1, 5])
def test_the_memory_of_many_messages_is_returned_when_few_are_left(deliveries_max: int) -> None:
    count = 16_384
    ledger = Ledger(0, settings=GroupSettings(deliveries_max=deliveries_max))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        lease = ledger.lease("m", 1 << 20, array("I", range(count)), now=0.0)
        for index in range(count):
            ledger.fail(lease, index, "no")
        del lease
        ledger.drop_waiting(1 << 20, (1 << 20) + count - 1)
        assert ledger.first_waiting in {None, (1 << 20) + count - 1}
        ledger.compact()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ledger.unacked == 1
    assert after - before <= 32 * KIB
