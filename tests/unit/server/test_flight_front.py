"""Connections of Flight that take too long are cut, others are not."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.limits import FLIGHT_FIRST_SECONDS_MAX
from penstock.server.flight.front import _Connection

STALL_SECONDS = 20.0


class Transport:
    """The client's side: how much of what was sent it has not read."""

    def __init__(self) -> None:
        self.unread = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_reading(self) -> bool:
        return True

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    front: Any = SimpleNamespace(stall_seconds_max=STALL_SECONDS)
    found: Any = _Connection(front)
    found.client = Transport()
    monkeypatch.setattr(found, "_log_refusal", lambda _reason: None)
    return found


def is_cut(connection: Any, seconds: float) -> bool:
    """Check a connection some time after its start."""
    connection.check(connection._since + seconds)
    return bool(connection.client.aborted)


def test_a_client_has_some_time_for_its_first_call(connection: Any) -> None:
    assert not is_cut(connection, 0)
    assert not is_cut(connection, FLIGHT_FIRST_SECONDS_MAX)
    assert is_cut(connection, FLIGHT_FIRST_SECONDS_MAX + 0.01)


def test_a_client_that_has_called_may_be_silent(connection: Any) -> None:
    connection.gate.trusted = True
    assert not is_cut(connection, 100 * FLIGHT_FIRST_SECONDS_MAX)


def test_a_client_that_waits_for_a_call_is_not_the_one_that_takes_long(
    connection: Any,
) -> None:
    connection._waits_for_call = True
    assert not is_cut(connection, FLIGHT_FIRST_SECONDS_MAX + 1)
    connection._waits_for_call = False
    assert not is_cut(connection, FLIGHT_FIRST_SECONDS_MAX)
    assert is_cut(connection, FLIGHT_FIRST_SECONDS_MAX + 1)


def test_a_client_that_does_not_read_what_it_was_sent_is_cut(connection: Any) -> None:
    connection.gate.trusted = True
    connection._sent, connection.client.unread = 100, 60
    assert not is_cut(connection, 1)
    assert not is_cut(connection, 1 + STALL_SECONDS)
    connection.client.unread = 59
    assert not is_cut(connection, 2 + STALL_SECONDS), "it has read something"
    assert is_cut(connection, 2.01 + 2 * STALL_SECONDS)


def test_a_client_that_does_not_send_what_it_has_begun_is_cut(connection: Any) -> None:
    connection.gate.trusted = True
    connection.gate.unfinished = 1
    assert not is_cut(connection, STALL_SECONDS)
    assert is_cut(connection, STALL_SECONDS + 0.01)
