"""The messages of a consumer group: done, leased, waiting, or dead."""

import random
import time
from array import array

import pytest

from penstock.core.groups import snapshots
from penstock.core.groups.ledger import Failure, GroupSettings, Ledger
from penstock.ports import GroupProgress, PendingRun
from penstock.ports.places import place_of

SETTINGS = GroupSettings(ack_wait_seconds=10, deliveries_max=2, unacked_max=100)


def rows(*numbers: int) -> "array[int]":
    return array("I", numbers)


def ledger(next_offset: int = 0) -> Ledger:
    return Ledger(next_offset, settings=SETTINGS)


def progress(of: Ledger, *, is_ordered: bool = False) -> GroupProgress:
    snapshot = of.snapshot()
    for _ in snapshot.build():
        pass
    assert snapshot.positions == of.positions
    return snapshot.progress(is_ordered=is_ordered, is_used=False)


def pending(of: Ledger) -> list[tuple[int, int, int]]:
    found = progress(of).pending
    return [(run.first, run.size, run.failures) for run in found]


def test_the_position_is_the_first_offset_that_is_not_done() -> None:
    group = ledger(100)
    lease = group.lease("a", 100, rows(0, 1, 5), now=0)
    group.pass_over(110)
    assert (group.positions[0], group.leased) == (100, 3)
    assert group.done(lease, 0)
    assert group.positions[0] == 101
    assert group.done(lease, 2)
    assert group.positions[0] == 101
    assert pending(group) == [(101, 1, 0)]
    assert not group.done(lease, 2), "it was done before"
    assert group.done(lease, 1)
    assert (group.positions[0], group.unacked) == (110, 0)


def test_a_run_is_acknowledged_in_one_step() -> None:
    group = ledger()
    lease = group.lease("a", 0, rows(*range(50)), now=0)
    group.pass_over(50)
    assert pending(group) == [(0, 50, 0)]
    group.all_done(lease)
    assert (group.positions[0], group.leased, group.held_by("a")) == (50, 0, 0)
    group.all_done(lease)
    assert group.leased == 0


def test_what_a_member_leaves_waits_and_has_not_failed() -> None:
    group = ledger()
    lease = group.lease("a", 0, rows(0, 1, 2), now=0)
    group.lease("b", 0, rows(3), now=0)
    group.pass_over(4)
    group.done(lease, 1)
    group.leave("a")
    assert group.waiting == {0: 0, 2: 0}
    assert group.first_waiting == 0
    assert group.waiting_in(1, 4, count=9) == [2]
    assert group.first_waiting == 0
    assert group.held_by("b") == 1
    again = group.lease("b", 0, rows(0), now=0)
    assert group.waiting == {2: 0}
    assert group.first_waiting == 2
    assert group.done(again, 0)
    assert not group.done(lease, 0), "it belongs to another member now"


def test_a_copy_is_built_in_steps_and_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "GROUP_PIECE_ROWS_MAX", 2)
    elsewhere = place_of(1, 0)
    group = Ledger(0, elsewhere, settings=SETTINGS)
    group.put_back(0, (7, 1, 2, 4))
    group.put_back(elsewhere, (3, 5))
    lease = group.lease("a", 10, rows(0, 1, 2, 3), now=0)
    group.pass_over(20)
    group.pass_over(elsewhere + 9)
    group.done(lease, 1)
    stored = progress(group)
    snapshot = group.snapshot()
    steps = 0
    for _ in snapshot.build():
        steps += 1
        group.all_done(lease)
        group.lease("a", 0, rows(1, 2, 4, 7), now=0)  # behind the step that looks at members
    assert steps == 3
    assert snapshot.progress(is_ordered=False, is_used=False) == stored
    assert snapshot.positions == {0: 1, 1: 3}
    assert [(run.first, run.size) for run in stored.pending] == [
        (10, 1), (12, 2), (1, 2), (4, 1), (7, 1), (elsewhere + 3, 1), (elsewhere + 5, 1),
    ]  # fmt: skip


def test_waiting_offsets_of_a_range_are_in_order() -> None:
    randomness = random.Random(3)
    group = Ledger(0, settings=GroupSettings(deliveries_max=10_000))
    for now in range(300):
        row = randomness.randrange(40)
        if row in group.waiting:
            lease = group.lease("a", 0, rows(row), now=now)
            if randomness.random() < 0.5:
                group.fail(lease, 0, "no")
        else:
            group.put_back(0, (row,))
        first, size, count = (randomness.randrange(1, 40) for _ in range(3))
        inside = sorted(each for each in group.waiting if first <= each < first + size)
        assert group.waiting_in(first, first + size, count=count) == inside[:count]
        assert group.first_waiting == min(group.waiting, default=None)
        if now % 10 == 0:
            group.drop_waiting(first, first + 3)
            assert not group.waiting_in(first, first + 3, count=3)


def test_the_cost_of_waiting_messages_grows_with_their_number_not_with_its_square() -> None:
    def seconds(count: int) -> float:
        group = ledger()
        group.put_back(0, range(count))
        start = time.process_time()
        for base in range(0, count, 20):
            assert len(group.waiting_in(base, base + 20, count=100)) == 20
            group.lease("a", base, rows(*range(20)), now=0)
        return time.process_time() - start

    few, many = (min(seconds(count) for _ in range(3)) for count in (4000, 64_000))
    assert many < 16 * few * 4, "it was 200 times as long"


def test_only_the_first_message_of_a_member_that_is_lost_has_failed() -> None:
    group = ledger(6)
    lease = group.lease("a", 4, rows(0, 1), now=0)
    group.lease("a", 0, rows(0, 1, 2), now=0, failures=1)
    group.done(lease, 0)
    group.leave("a", is_lost=True)
    assert group.waiting == {5: 1, 0: 1, 1: 1, 2: 1}, "the member got the fifth before the others"
    assert not group.buried


def test_the_message_that_stops_each_member_is_buried_alone() -> None:
    group = ledger()
    group.pass_over(9)
    group.put_back(0, range(9))
    for member in range(5):
        while group.waiting:
            first = group.first_waiting
            assert first is not None
            failures = group.waiting[first]
            run = [each for each in sorted(group.waiting) if group.waiting[each] == failures]
            group.lease(member, 0, rows(*run), now=0, failures=failures)
        for lease in list(group._holdings[member].leases if group.held_by(member) else ()):
            for index in range(len(lease)):
                if lease.offset(index) == 6:  # here the member is killed
                    break
                group.done(lease, index)
            if lease.left:
                break
        group.leave(member, is_lost=True)
        if group.buried:
            break
    assert group.buried == {6: Failure("the member was lost", 2)}
    assert (member, group.waiting) == (1, {7: 0, 8: 0})


def test_the_time_of_messages_starts_again_while_their_member_acknowledges_others() -> None:
    group = ledger()
    first, second = (group.lease("a", base, rows(0, 1, 2), now=0) for base in (0, 3))
    group.pass_over(6)
    group.acknowledged(first, now=8)
    group.done(first, 0)
    assert group.expire(17.9) == set()
    group.acknowledged(first, now=17)
    group.done_run(first, 1, 3)
    assert group.expire(26.9) == set(), "it began with the second run at 17"
    group.acknowledged(second, now=26)
    group.done(second, 0)
    assert group.expire(35.9) == set()
    assert group.expire(36) == {"a"}
    assert group.waiting == {4: 1, 5: 0}, "it was silent at the first one"


def test_messages_that_a_member_passed_over_have_their_time_once() -> None:
    group = ledger()
    runs = [group.lease("a", base, rows(0, 1, 2), now=0) for base in (0, 3, 6, 9)]
    group.pass_over(12)
    group.acknowledged(runs[0], now=1)
    group.done(runs[0], 0)
    group.acknowledged(runs[2], now=5)
    group.done(runs[2], 0)
    for now in (6, 14.9):
        group.acknowledged(runs[2], now=now)
        assert group.expire(now) == set()
    group.acknowledged(runs[0], now=14.9)
    assert group.expire(15) == {"a"}, "the first two runs were passed over at 5"
    assert group.waiting == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}
    assert group.leased == 5
    assert group.expire(24.8) == set()
    assert group.expire(24.9) == {"a"}
    assert group.leased == 0


def test_messages_that_a_member_got_later_have_their_whole_time() -> None:
    group = ledger()
    group.lease("a", 0, rows(0), now=0)
    group.lease("a", 1, rows(0), now=6)
    group.pass_over(2)
    assert group.expire(10) == {"a"}
    assert group.waiting == {0: 1}
    assert group.expire(15.9) == set()
    assert group.expire(16) == {"a"}


def test_the_time_of_a_member_that_had_no_messages_starts_with_the_next_ones() -> None:
    group = ledger()
    lease = group.lease("a", 0, rows(0), now=0)
    group.acknowledged(lease, now=1)
    group.all_done(lease)
    group.acknowledged(lease, now=2)  # it has none any more
    group.lease("a", 1, rows(0), now=50)
    assert group.expire(59.9) == set()
    assert group.expire(60) == {"a"}


def test_messages_are_taken_from_members_whose_time_is_over() -> None:
    group = ledger()
    group.lease("a", 0, rows(0), now=0)
    group.lease("b", 0, rows(1), now=5)
    group.pass_over(2)
    assert group.expire(9.9) == set()
    assert group.expire(10) == {"a"}
    assert group.waiting == {0: 1}
    assert group.expire(15) == {"b"}
    assert group.leased == 0


def test_what_fails_too_often_is_buried_and_can_be_driven_again() -> None:
    group = ledger()
    lease = group.lease("a", 0, rows(0, 1), now=0)
    group.pass_over(2)
    assert group.fail(lease, 0, "first")
    assert not group.fail(lease, 0, "again")
    assert group.waiting == {0: 1}
    lease = group.lease("a", 0, rows(0), now=0, failures=1)
    group.fail(lease, 0, "second")
    assert group.buried == {0: Failure("second", 2)}
    assert (group.waiting, group.positions[0]) == ({}, 0)
    group.is_dead(0)
    assert (list(group.dead), group.positions[0]) == ([0], 1)
    assert group.redrive([0, 7]) == 1
    assert (group.waiting, group.positions[0]) == ({0: 0}, 0)


def redriven() -> Ledger:
    """A group that delivers a dead letter again."""
    group = Ledger(2, settings=SETTINGS, dead=[0])
    assert group.redrive([0]) == 1
    return group


@pytest.mark.parametrize("way", ["done", "done_run", "all_done"])
def test_a_dead_letter_that_is_driven_again_counts_until_it_was_processed(way: str) -> None:
    group = redriven()
    stored = progress(group, is_ordered=False)
    restored = Ledger(2, settings=SETTINGS, pending=stored.pending, dead=stored.dead)
    for each in (group, restored):
        assert each.redrive([0]) == 0, "it is delivered again already"
        each.lease("a", 0, rows(0), now=0)
        each.leave("a")
        lease = each.lease("a", 0, rows(0), now=0)
        assert list(each.dead) == [0]
        match way:
            case "done":
                each.done(lease, 0)
            case "done_run":
                each.done_run(lease, 0, 1)
            case "all_done":
                each.all_done(lease)
        assert (list(each.dead), each.left_dead, each.unacked) == ([], [], 0)


def test_a_dead_letter_that_is_driven_again_is_kept_when_it_cannot_be_processed() -> None:
    group = redriven()
    assert group.drop_waiting(0, 1) == 0, "it is not lost"
    assert group.left_dead == [0]
    group.redrive([0])
    for failures in (0, 1):
        assert group.left_dead == []
        lease = group.lease("a", 0, rows(0), now=0, failures=failures)
        group.fail(lease, 0, "again")
    group.is_dead(0)
    assert group.left_dead == [0]
    group.redrive([0])
    group.reset(0)
    assert group.left_dead == [0]


def test_a_stored_state_gives_out_what_was_not_done() -> None:
    group = ledger()
    lease = group.lease("a", 0, rows(0, 1, 2, 7), now=0)
    group.pass_over(8)
    group.done(lease, 1)
    stored = progress(group, is_ordered=True)
    assert (stored.next, stored.ordered) == (8, True)
    restored = Ledger(stored.next, settings=SETTINGS, pending=stored.pending, dead=stored.dead)
    assert restored.waiting == {0: 0, 2: 0, 7: 0}, "the members had no time to fail"
    assert (restored.positions[0], restored.next_offsets[0]) == (0, 8)
    assert pending(restored) == [(0, 1, 0), (2, 1, 0), (7, 1, 0)]
    often = Ledger(8, settings=SETTINGS, pending=(PendingRun(3, 2, 2),))
    assert set(often.buried) == {3, 4}


def test_a_reset_takes_everything_from_members() -> None:
    group = ledger()
    lease = group.lease("a", 0, rows(0, 1), now=0)
    group.pass_over(2)
    group.fail(lease, 0, "no")
    group.reset(1)
    assert (group.next_offsets[0], group.positions[0], group.unacked, group.held_by("a")) == (
        1,
        1,
        0,
        0,
    )
    assert not group.done(lease, 1)
    assert group.first_waiting is None


def test_what_cannot_be_read_is_given_up() -> None:
    group = ledger()
    group.lease("a", 0, rows(0, 1, 2), now=0)
    group.pass_over(3)
    group.leave("a")
    assert group.drop_waiting(0, 2) == 2
    assert group.waiting == {2: 0}
    group.put_back(0, rows(2, 9))
    assert group.waiting == {2: 0, 9: 0}


def test_changes_are_counted_so_that_only_they_are_stored() -> None:
    group = ledger()
    seen = {group.changes}
    lease = group.lease("a", 0, rows(0), now=0)
    seen.add(group.changes)
    group.done(lease, 0)
    seen.add(group.changes)
    group.pass_over(1)
    seen.add(group.changes)
    assert len(seen) == 4
    group.pass_over(1)
    group.expire(100)
    assert group.changes in seen


def test_a_run_of_acknowledgments_is_that_of_each_message() -> None:
    randomness = random.Random(3)
    for _ in range(300):
        one, many = ledger(), ledger()
        first = one.lease("a", 0, rows(*range(12)), now=0)
        second = many.lease("a", 0, rows(*range(12)), now=0)
        for _ in range(4):
            start = randomness.randrange(12)
            end = randomness.randrange(start, 12) + 1
            left = [index for index in range(start, end) if not second.is_done(index)]
            run = range(start, second.run_end(start, end))
            if not second.is_done(start) and second.left:
                assert list(run) == left[: len(run)]
                assert run.stop == end or second.is_done(run.stop)
            count = sum(one.done(first, index) for index in range(start, end))
            assert many.done_run(second, start, end) == count == len(left)
            assert (many.leased, many.held_by("a")) == (one.leased, one.held_by("a"))
            assert pending(many) == pending(one)
            if second.left:
                assert second.first_left == first.first_left
