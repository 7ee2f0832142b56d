"""Ids of the broker's own LamaMQ messages."""

from penstock.core.encoders.encoder import ForwardIds
from penstock.limits import FORWARDS_RECALLED_MAX


def test_ids_start_anywhere_and_go_up_by_one() -> None:
    assert len({ForwardIds().take() for _ in range(20)}) > 1
    ids = ForwardIds()
    first = ids.take(3)
    assert ids.take() == (first + 3) % 2**31


def test_only_the_last_ids_that_were_taken_are_recent() -> None:
    ids = ForwardIds()
    first = ids.take()
    assert ids.is_recent(first)
    assert not ids.is_recent((first + 1) % 2**31)
    assert not ids.is_recent((first - 1) % 2**31)
    ids.take(FORWARDS_RECALLED_MAX - 1)
    assert ids.is_recent(first)
    ids.take()
    assert not ids.is_recent(first)


def test_ids_wrap_around() -> None:
    ids = ForwardIds()
    ids._next = 2**31 - 1
    assert ids.take(2) == 2**31 - 1
    assert ids.take() == 1
    assert all(map(ids.is_recent, (2**31 - 1, 0, 1)))
    assert not ids.is_recent(2)
