"""herald and the log: publishes have no acknowledgment, so only a failure is told."""

import pytest

from penstock.conform.herald.encoding import (
    PING,
    PONG,
    error,
    handshake_pub,
    handshake_sub,
    publish,
)
from tests.support.failing_log import Desk

RATE_LIMIT_EXCEEDED = 4
"""The one code of the specification that says "not now"."""


@pytest.fixture
def desk() -> Desk:
    """A publisher of channel 7."""
    desk = Desk()
    desk.send(handshake_pub())
    assert desk.read()[:3] == b"\xfe\xca\x03"
    return desk


def test_a_run_that_the_log_does_not_take_is_answered_by_one_error(desk: Desk) -> None:
    link = desk.connect()
    link.handler.received(memoryview(handshake_sub(b"\x07")))
    link.read()
    desk.log.full = True
    desk.send(publish(7, b"a") + publish(7, b"b") + PING + publish(7, b"c"))
    assert desk.read() == error(RATE_LIMIT_EXCEEDED) + PONG + error(RATE_LIMIT_EXCEEDED)
    assert link.read() == b""
    desk.log.full = False
    desk.send(publish(7, b"d"))
    assert link.read().endswith(b"d")
    desk.commit()
    assert desk.read() == b""


def test_a_run_that_is_lost_is_answered_by_one_error(desk: Desk) -> None:
    desk.send(publish(7, b"a") + publish(7, b"b"))
    desk.commit()
    desk.send(publish(7, b"c") + publish(7, b"d"))
    desk.fail()
    assert desk.read() == error(RATE_LIMIT_EXCEEDED)


def test_a_pong_does_not_wait_for_the_disk(desk: Desk) -> None:
    desk.send(publish(7, b"a") + PING)
    assert desk.read() == PONG


def test_the_error_is_in_the_clients_byte_order() -> None:
    desk = Desk()
    desk.send(handshake_pub(order=">"))
    desk.read()
    desk.send(publish(7, b"a", order=">"))
    desk.fail()
    assert desk.read() == error(RATE_LIMIT_EXCEEDED, order=">")


@pytest.mark.parametrize("outcome", ["safe", "lost"])
def test_who_ends_is_closed_once_its_messages_are_settled(desk: Desk, outcome: str) -> None:
    desk.send(publish(7, b"a"))
    desk.link.handler.ended()
    assert not desk.link.closed
    if outcome == "lost":
        desk.fail()
    else:
        desk.commit()
    assert desk.link.closed
    assert desk.read() == (error(RATE_LIMIT_EXCEEDED) if outcome == "lost" else b"")


def test_messages_are_kept_under_the_client_id() -> None:
    desk = Desk()
    desk.send(handshake_pub(client_id="zähler".encode()) + publish(7, b"a"))
    assert desk.log.senders == ["zähler"]
