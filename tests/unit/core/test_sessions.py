"""Numbers of sessions."""

from penstock.core.sessions import NUMBER_MAX, NUMBER_MIN, Sessions, node_numbers, node_of
from penstock.limits import SESSION_NUMBERS_BLOCK


def test_numbers_start_at_the_lowest() -> None:
    sessions = Sessions(sessions_max=1)
    assert [sessions.next_number() for _ in range(3)] == [1000, 1001, 1002]


def test_every_number_is_reserved_before_it_is_assigned() -> None:
    sessions = Sessions(sessions_max=1)
    first = 5000
    reserved = [first + SESSION_NUMBERS_BLOCK]
    sessions.continue_from(first, reserved.append)
    for number in range(first, first + 4 * SESSION_NUMBERS_BLOCK):
        assert sessions.next_number() == number
        assert number < reserved[-1]
    assert len(reserved) == 5


def test_numbers_wrap_with_their_reservation() -> None:
    sessions = Sessions(sessions_max=1)
    reserved: list[int] = []
    sessions.continue_from(NUMBER_MAX, reserved.append)
    assert sessions.next_number() == NUMBER_MAX
    assert sessions.next_number() == NUMBER_MIN
    for _ in range(SESSION_NUMBERS_BLOCK):
        sessions.next_number()
    assert NUMBER_MIN < reserved[-1] < NUMBER_MIN + 3 * SESSION_NUMBERS_BLOCK
    assert sessions.after(NUMBER_MAX, 1) == NUMBER_MIN


def test_a_kept_number_out_of_range_is_not_assigned() -> None:
    for first in (-1, 0, 999, NUMBER_MAX + 1):
        sessions = Sessions(sessions_max=1)
        sessions.continue_from(first, lambda _: None)
        assert sessions.next_number() == NUMBER_MIN


def test_nodes_assign_numbers_of_their_own() -> None:
    for node in (0, 1, 4095):
        numbers = node_numbers(node)
        sessions = Sessions(sessions_max=10)
        sessions.numbers = numbers
        assert {node_of(numbers[0]), node_of(numbers[-1])} == {node}
        sessions.continue_from(numbers[-1], lambda _: None)
        assert [sessions.next_number() for _ in range(2)] == [numbers[-1], numbers[0]]
    assert node_numbers(0)[0] == NUMBER_MIN
    assert node_numbers(4095)[-1] == NUMBER_MAX
