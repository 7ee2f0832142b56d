"""LamaMQ and the log: a push is answered when its message is safe, with an error if it is lost."""

import struct

import pytest

from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    CHOICE,
    LITTLE,
    OFFER,
    PUSHED,
    SERVER_EXCEPTION,
    answer,
    authentication,
    header,
    push,
    register,
    subscribe,
    topic_is,
)
from tests.support.failing_log import Desk

ORDERS = pytest.mark.parametrize("order", [BIG, LITTLE], ids=["big", "little"])


def open_desk(order: str = BIG) -> Desk:
    """A client that has shaken hands."""
    desk = Desk()
    desk.send(authentication(b"meter-3", order=order))
    assert desk.read() == OFFER
    desk.send(CHOICE)
    return desk


def expect_error(data: bytes, identifier: int, error: int, *, order: str = BIG) -> bytes:
    """`data` starts with the answer to a message; return what stands behind it."""
    start = header(identifier, error, order=order)
    assert data.startswith(start), data.hex(" ")
    (size,) = struct.unpack_from(f"{order}I", data, len(start))
    text = data[len(start) + 4 :][:size].decode()
    assert "cannot be kept" in text
    return data[len(start) + 4 + size :]


def test_pushes_are_answered_when_they_are_safe_and_not_before() -> None:
    desk = open_desk()
    desk.send(push(1, b"a") + push(2, b"b"))
    desk.send(push(3, b"a"))
    desk.write_only()
    assert desk.read() == b""
    desk.commit(1)
    assert desk.read() == answer(1) + answer(2)
    desk.commit(1)
    assert desk.read() == answer(3)


@ORDERS
def test_pushes_that_the_log_does_not_take_are_refused_each_and_reach_nobody(order: str) -> None:
    desk = open_desk(order)
    desk.send(subscribe(9, b"#", order=order))
    assert desk.read() == answer(9, order=order)
    desk.log.full = True
    desk.send(push(1, b"a", order=order) + push(2, b"b", order=order))
    rest = expect_error(desk.read(), 1, SERVER_EXCEPTION, order=order)
    assert expect_error(rest, 2, SERVER_EXCEPTION, order=order) == b""


@ORDERS
def test_pushes_that_are_lost_are_refused_each_in_their_order(order: str) -> None:
    desk = open_desk(order)
    desk.send(push(1, b"a", order=order))
    desk.commit()
    assert desk.read() == answer(1, order=order)
    desk.send(push(0x7FFFFFFF, b"a", order=order) + push(3, b"b", order=order))
    desk.send(push(4, b"c", order=order))
    desk.fail()
    desk.send(push(5, b"d", order=order))
    desk.commit()
    rest = expect_error(desk.read(), 0x7FFFFFFF, SERVER_EXCEPTION, order=order)
    rest = expect_error(rest, 3, SERVER_EXCEPTION, order=order)
    assert expect_error(rest, 4, SERVER_EXCEPTION, order=order) == answer(5, order=order)


def test_what_is_known_at_once_waits_behind_what_is_not() -> None:
    desk = open_desk()
    desk.send(push(1, b"a") + subscribe(2, b"x") + push(3, b"+") + push(4, b"a"))
    assert desk.read() == b""
    desk.commit()
    found = desk.read()
    start = answer(1) + answer(2) + header(3, BAD_REQUEST)
    assert found.startswith(start)
    assert found.endswith(answer(4))


@pytest.mark.parametrize("outcome", ["safe", "lost"])
def test_who_ends_is_closed_behind_the_answers_that_wait(outcome: str) -> None:
    desk = open_desk()
    desk.send(push(1, b"a"))
    desk.link.handler.ended()
    assert not desk.link.closed
    if outcome == "lost":
        desk.fail()
        assert expect_error(desk.read(), 1, SERVER_EXCEPTION) == b""
    else:
        desk.commit()
        assert desk.read() == answer(1)
    assert desk.link.closed


def test_messages_are_kept_under_the_identity_name() -> None:
    desk = open_desk()
    desk.send(push(1, b"a"))
    assert desk.log.senders == ["meter-3"]


def test_a_push_that_middleware_let_pass_and_the_log_does_not_take_is_refused() -> None:
    desk = open_desk()
    link = desk.connect()
    for data in (authentication(b"judge"), CHOICE, register(1, b"h", PUSHED, topic_is(b"a"))):
        link.handler.received(memoryview(data))
    link.read()
    desk.send(push(5, b"a"))
    call = link.read()
    desk.log.full = True
    link.handler.received(memoryview(call[:4] + b"\x00"))
    assert expect_error(desk.read(), 5, SERVER_EXCEPTION) == b""
    assert desk.log.next_offset == 0


def test_an_offset_of_a_broker_without_history_is_a_bad_request() -> None:
    desk = open_desk()
    desk.send(subscribe(1, b"a@earliest"))
    assert desk.read().startswith(header(1, BAD_REQUEST))
    desk.send(subscribe(2, b"a@nowhere"))
    assert desk.read() == answer(2)
