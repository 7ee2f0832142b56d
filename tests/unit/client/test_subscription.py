"""Where subscriptions of the client library are, and where they resume."""

import dataclasses

from penstock.client.inbox import Inbox
from penstock.client.streams import Queue
from penstock.client.subscription import Subscription, text_to_restore
from penstock.client.values import Delivery
from penstock.positions import Anchor, AnchoredPartition, Place

SECOND = 1_000_000


def anchor(offset: int, time_us: int, *, horizon: int = 0, has_history: bool = True) -> Anchor:
    partitions = {0: AnchoredPartition(offset, horizon, is_final=False)}
    return Anchor("a", 1, time_us, partitions, has_history=has_history)


def place(offset: int, time_us: int, *, log_id: int = 1, is_final: bool = False) -> Place:
    return Place(log_id, 0, offset, time_us, 1000, is_final=is_final)


def test_a_message_is_taken_once() -> None:
    subscription = Subscription("a")
    subscription.opened(anchor(5, 10))
    assert not subscription.takes(place(4, 9))
    assert subscription.takes(place(5, 11))
    assert not subscription.takes(place(5, 11))
    assert subscription.takes(place(6, 11))


def test_an_offset_that_was_assigned_again_is_another_message() -> None:
    subscription = Subscription("a")
    subscription.opened(anchor(5, 10))
    assert subscription.takes(place(9, 20))
    assert subscription.takes(place(7, 30))
    assert not subscription.takes(place(7, 30))


def test_an_offset_that_is_final_is_the_same_message_whatever_its_time() -> None:
    subscription = Subscription("a")
    assert subscription.takes(place(9, 20, is_final=True))
    assert not subscription.takes(place(7, 30, is_final=True))


def test_another_log_has_other_messages() -> None:
    subscription = Subscription("a")
    assert subscription.takes(place(9, 20))
    assert subscription.takes(place(1, 5, log_id=2))


def test_it_resumes_at_the_time_of_its_last_message_or_its_anchor() -> None:
    subscription = Subscription("a")
    subscription.opened(anchor(5, 3 * SECOND))
    assert text_to_restore([subscription]) == "a@1970-01-01T00:00:03.000000Z"
    subscription.takes(place(5, 4 * SECOND + 1))
    subscription.takes(place(6, 2 * SECOND))  # the clock was set back
    assert text_to_restore([subscription]) == "a@1970-01-01T00:00:04.000001Z"


def test_subscriptions_of_one_name_resume_at_the_earlier_place() -> None:
    first, second, third = Subscription("a"), Subscription("a"), Subscription("a", resumes=False)
    for subscription, time_us in ((first, 9), (second, 8), (third, 7)):
        subscription.opened(anchor(5, time_us * SECOND))
    assert text_to_restore([first, second, third]) == "a@1970-01-01T00:00:08.000000Z"


def test_a_replay_without_a_message_begins_again() -> None:
    subscription = Subscription("a@earliest")
    subscription.opened(anchor(5, SECOND))
    assert text_to_restore([subscription]) == "a@earliest"
    assert subscription.takes(place(0, SECOND))
    assert text_to_restore([subscription]) == "a@1970-01-01T00:00:01.000000Z"


def test_a_broker_that_says_no_positions_is_asked_for_new_messages() -> None:
    assert text_to_restore([Subscription("a@earliest")]) == "a"
    assert text_to_restore([Subscription("a@group=g,earliest")]) == "a@group=g,earliest"


def test_missing_messages_are_noticed() -> None:
    subscription = Subscription("a")
    assert subscription.opened(anchor(5, 10)) is None
    subscription.is_open = False
    assert subscription.opened(anchor(9, 20, horizon=5)) is None
    subscription.is_open = False
    assert "below offset 6" in (subscription.opened(anchor(9, 20, horizon=6)) or "")
    subscription.is_open = False
    assert "no log" in (subscription.opened(anchor(0, 30, has_history=False)) or "")


def test_without_resume_it_goes_on_behind_the_new_anchor() -> None:
    subscription = Subscription("a", resumes=False)
    subscription.opened(anchor(5, 10))
    subscription.is_open = False
    assert subscription.opened(anchor(9, 20, has_history=False)) is None
    assert not subscription.takes(place(8, 15))
    assert subscription.takes(place(9, 25))


def anchors(
    next_offsets: dict[int, int], time_us: int, *, own: int | None = None, is_replay: bool = False
) -> Anchor:
    """An anchor of a log of several nodes, from node `own`."""
    partitions = {
        number: AnchoredPartition(offset, 0, is_final=number != own)
        for number, offset in next_offsets.items()
    }
    return Anchor("a", 1, time_us, partitions, has_history=True, is_replay=is_replay)


def of(partition: int, offset: int, time_us: int, *, is_final: bool = True) -> Place:
    return Place(1, partition, offset, time_us, 1000, is_final=is_final)


def reopened(subscription: Subscription, anchor: Anchor) -> str | None:
    subscription.connecting()
    return subscription.opened(anchor)


def at(seconds: int) -> str:
    return f"a@1970-01-01T00:00:{seconds:02}.000000Z"


def test_a_partition_that_a_later_anchor_has_begins_where_the_subscription_resumed() -> None:
    subscription = Subscription("a")
    subscription.opened(anchors({0: 5, 1: 7}, SECOND))
    assert subscription.takes(of(0, 5, 2 * SECOND))
    assert subscription.takes(of(1, 7, 3 * SECOND))
    assert reopened(subscription, anchors({0: 6, 1: 8, 2: 4}, 9 * SECOND, is_replay=True)) is None
    assert text_to_restore([subscription]) == at(2)
    assert subscription.takes(of(2, 0, 2 * SECOND))  # it was not delivered before
    assert not subscription.takes(of(2, 0, 2 * SECOND))
    assert not subscription.takes(of(0, 5, 2 * SECOND))
    assert subscription.takes(of(0, 6, 4 * SECOND))
    assert text_to_restore([subscription]) == at(2)
    assert subscription.takes(of(2, 1, 5 * SECOND))
    assert text_to_restore([subscription]) == at(3)


def test_messages_of_a_partition_that_no_anchor_had_count_too() -> None:
    subscription = Subscription("a")
    subscription.opened(anchors({0: 5}, 3 * SECOND, own=0))
    assert subscription.takes(of(0, 5, 5 * SECOND, is_final=False))
    assert subscription.takes(of(1, 0, 4 * SECOND))
    assert text_to_restore([subscription]) == at(4)
    assert text_to_restore([subscription], earlier_us=3 * SECOND) == at(1)
    assert text_to_restore([subscription], earlier_us=9 * SECOND) == at(0)


def test_quiet_partitions_move_on_with_anchors_of_the_same_connection() -> None:
    subscription = Subscription("a")
    subscription.opened(anchors({0: 0, 1: 0}, SECOND))
    assert subscription.takes(of(0, 3, 30 * SECOND))
    assert text_to_restore([subscription]) == at(1)
    assert subscription.opened(anchors({0: 9, 1: 4, 2: 6}, 20 * SECOND)) is None
    assert text_to_restore([subscription]) == at(20)
    assert not subscription.takes(of(1, 3, 21 * SECOND))
    assert not subscription.takes(of(2, 5, 21 * SECOND))
    assert subscription.takes(of(0, 9, 31 * SECOND))
    assert subscription.takes(of(1, 4, 22 * SECOND))
    assert subscription.takes(of(2, 6, 23 * SECOND))
    assert text_to_restore([subscription]) == at(22)


def test_an_anchor_that_messages_follow_moves_nothing() -> None:
    subscription = Subscription("a")
    subscription.opened(anchors({0: 0, 1: 0}, SECOND))
    subscription.opened(anchors({0: 9, 1: 9}, 20 * SECOND, is_replay=True))
    assert text_to_restore([subscription]) == at(1)
    assert subscription.takes(of(1, 0, 2 * SECOND))


def test_a_partition_of_which_the_node_has_read_less_does_not_move() -> None:
    """The messages that are missing there are either those taken before, or took their offsets."""
    subscription = Subscription("a")
    subscription.opened(anchors({0: 0, 1: 0}, SECOND, own=0))
    assert subscription.takes(of(0, 8, 5 * SECOND, is_final=False))
    reopened(subscription, anchors({0: 3, 1: 2}, 9 * SECOND, own=1, is_replay=True))
    subscription.opened(anchors({0: 6, 1: 2}, 20 * SECOND, own=1))
    assert not subscription.takes(of(0, 6, 4 * SECOND))
    assert subscription.takes(of(0, 7, 8 * SECOND))
    assert text_to_restore([subscription]) == at(8)


def test_a_replay_that_has_ended_resumes_at_its_anchor() -> None:
    subscription = Subscription("a@earliest")
    subscription.opened(anchors({0: 5, 1: 0}, SECOND, is_replay=True))
    assert subscription.takes(of(0, 0, SECOND))
    assert text_to_restore([subscription]) == "a@earliest"  # partition 1 may have more
    subscription.opened(anchors({0: 5, 1: 0}, 20 * SECOND))
    assert text_to_restore([subscription]) == at(20)


def test_a_replay_from_a_time_goes_on_from_that_time_not_from_a_later_one() -> None:
    subscription = Subscription("a@-15s")
    subscription.opened(anchors({0: 5, 1: 0}, 20 * SECOND, is_replay=True))
    assert subscription.takes(of(0, 0, 19 * SECOND))
    assert text_to_restore([subscription]) == at(5)  # not 15 seconds before the reconnect
    reopened(subscription, anchors({0: 5, 1: 0}, 40 * SECOND, is_replay=True))
    assert text_to_restore([subscription]) == at(5)


def test_a_place_that_is_not_known_is_noticed() -> None:
    subscription = Subscription("a")
    subscription.opened(Anchor("a", 1, SECOND, {}, has_history=True))
    assert text_to_restore([subscription]) == "a"
    assert "not known" in (reopened(subscription, anchors({0: 9}, 9 * SECOND)) or "")
    assert text_to_restore([subscription]) == at(9)
    assert reopened(subscription, anchors({0: 9}, 20 * SECOND, is_replay=True)) is None


def test_anchors_do_not_move_a_member_of_a_group() -> None:
    member = Subscription("a@group=g")
    member.opened(anchors({0: 9}, 20 * SECOND))
    assert member.takes(of(0, 3, SECOND))
    assert text_to_restore([member]) == "a@group=g"


def test_groups_are_restored_beside_a_subscription_with_their_name() -> None:
    inbox = Inbox(lambda: None)
    for pattern in ("a", "a@earliest", "a@group=g", "a@group=h,earliest"):
        inbox.add(pattern, Queue[Delivery](items_max=1, low=inbox.low))
    texts = [text_to_restore(same) for same in inbox.subscriptions()]
    assert texts == ["a", "a@group=g", "a@group=h,earliest"]


def test_in_a_group_it_takes_everything_and_does_not_resume() -> None:
    subscription = Subscription("a")
    joined = dataclasses.replace(anchor(5, 10), in_group=True)
    assert subscription.opened(joined) is None
    for offset in (5, 4, 5):
        assert subscription.takes(place(offset, 11))
    assert not subscription.was_quiet()
    assert text_to_restore([subscription]) == "a"
    subscription.connecting()
    assert subscription.opened(dataclasses.replace(joined, in_group=False)) is None
    assert not subscription.takes(place(4, 9)), "it is in no group any more, and begins here"
    assert subscription.takes(place(5, 11))
