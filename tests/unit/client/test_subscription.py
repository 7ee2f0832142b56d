"""Where subscriptions of the client library are, and where they resume."""

from penstock.client.subscription import Subscription, text_to_restore
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
    assert "begins at offset 6" in (subscription.opened(anchor(9, 20, horizon=6)) or "")
    subscription.is_open = False
    assert "no log" in (subscription.opened(anchor(0, 30, has_history=False)) or "")


def test_without_resume_it_goes_on_behind_the_new_anchor() -> None:
    subscription = Subscription("a", resumes=False)
    subscription.opened(anchor(5, 10))
    subscription.is_open = False
    assert subscription.opened(anchor(9, 20, has_history=False)) is None
    assert not subscription.takes(place(8, 15))
    assert subscription.takes(place(9, 25))
