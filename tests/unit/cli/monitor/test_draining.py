"""`penstock drain`, beside the tests with a broker of its own process in tests/interop."""

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.cli.monitor.kept_connection import KeptConnection
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker


@pytest.fixture
def broker() -> Iterator[HttpBroker]:
    with HttpBroker() as live:
        yield live


def test_a_broker_that_does_not_end_is_reported(
    commands: Commands, broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    def drain(seconds: float | None) -> float:
        asked.append(seconds)
        return 0.1

    monkeypatch.setattr("penstock.cli.monitor.draining._MARGIN_SECONDS", 0.1)
    broker.server.http.drain = drain
    done = commands.run("drain", "--wait", "7.5", "--url", broker.url)
    assert asked == [7.5]
    assert (done.code, done.out) == (2, "draining 0 clients, for at most 0.1 s\n")
    assert done.err.startswith(f"penstock: the broker at {broker.url} has not ended; ")


def test_a_broker_that_is_part_of_a_program_says_so(commands: Commands, broker: HttpBroker) -> None:
    line = commands.run("drain", "--url", broker.url).error_line()
    assert "part of another program" in line


@pytest.mark.parametrize("wait", ["0", "-1", "3601", "soon"])
def test_a_wait_that_is_none_is_one_line(commands: Commands, wait: str) -> None:
    assert "--wait" in commands.run("drain", "--wait", wait).error_line()


def test_without_a_broker_it_says_so(commands: Commands) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        done = commands.run("drain", "--url", f"http://127.0.0.1:{port}")
    assert "no broker answers" in done.error_line()


def test_a_kept_connection_is_waited_for_until_its_end() -> None:
    ours, theirs = socket.socketpair()
    with KeptConnection() as kept:
        kept.keep(ours)
        ours.close()
        theirs.send(b"what comes before the end")
        closing = threading.Timer(0.1, theirs.close)
        closing.start()
        assert kept.wait_for_end(10)
        closing.join()


def test_a_kept_connection_that_stays_open_is_no_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, KeptConnection() as kept:
        kept.keep(ours)
        assert not kept.wait_for_end(0.05)
