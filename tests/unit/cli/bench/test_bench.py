"""`penstock bench`: figures of every protocol, and that what is lost is never counted."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from penstock.cli.bench import load as bench_load
from penstock.cli.bench.load import Figures
from penstock.cli.bench.measure import _lost
from penstock.cli.bench.wire import wire_of
from penstock.cli.protocol_help import LABELS
from penstock.gateway.options import GatewayOptions
from tests.support import herald_bytes as herald
from tests.support.commands import Commands
from tests.support.live import LiveBroker
from tests.support.running import Running, run

QUICK = ("--seconds", "0.1", "--rate", "1000")


def at(address: tuple[str, int]) -> str:
    return f"tcp://{address[0]}:{address[1]}"


def test_every_protocol_is_measured_on_a_running_broker(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker:
        arguments = ("--subscribers", 2, "--url", at(broker.address), "--json")
        done = run("bench", *QUICK, *arguments, "--topic", "channel/3")
        received = sum(broker.server.broker.counters.messages_received.values())
    assert (done.code, done.err) == (0, ""), done
    found = json.loads(done.out)
    assert found["durability"] == "as the broker is set"
    assert (found["value_bytes"], found["publishers"], found["subscribers"]) == (100, 1, 2)
    results = {each["protocol"]: each for each in found["results"]}
    assert list(results) == ["rheos1", "rheos2", "fleximq", "herald", "lamamq"]
    for name, result in results.items():
        acknowledged = result["published"] if wire_of(name).acknowledged_bytes else None
        assert result["acknowledged"] == acknowledged
        assert result["delivered"] == 2 * result["published"]
        assert result["lost"] == 0
        assert result["in_per_second"] > 0
        assert result["out_per_second"] > 0
        latency = result["latency_ms"]
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    # The broker counted the same: all of the first load, and 100 of the second.
    published = sum(each["published"] for each in results.values())
    assert received == published + len(results) * 100


def test_a_broker_is_started_and_leaves_nothing(tmp_path: Path) -> None:
    arguments = ("--protocol", "rheos2", "--durability", "os", "--size", 16, "--publishers", 2)
    done = run("bench", *QUICK, *arguments, TMPDIR=str(tmp_path))
    assert (done.code, done.err) == (0, ""), done
    first, second, columns, row = done.out.decode().splitlines()
    assert first == (
        "Values of 16 bytes; 2 publishers, 1 subscriber; 0.1 s each; "
        "broker: started for this; durability: os."
    )
    assert second == "Latency in ms at 1,000 messages a second."
    assert columns.split() == ["in/s", "out/s", "p50", "p95", "p99", "max", "lost"]
    name, *figures, lost = row.split()
    assert (name, len(figures), lost) == ("rheos2", 6, "0")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_shows_what_was_measured(tmp_path: Path) -> None:
    arguments = ("--seconds", 60, "--protocol", "herald", "--durability", "memory")
    with Running("bench", *arguments, "--json", TMPDIR=str(tmp_path)) as command:
        deadline = time.monotonic() + 10
        while not list(tmp_path.iterdir()):
            assert time.monotonic() < deadline, "it started no broker"
            time.sleep(0.02)
        code, said = command.end(signal.SIGINT)
        assert (code, said) == (130, "")
        assert json.loads(command.stdout.read())["results"] == []
    assert list(tmp_path.iterdir()) == []


class Lossy:
    """A herald broker that lets its subscriber have every other message."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._subscriber: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            hello = peer.recv(64)
            if not hello:
                return
            peer.sendall(herald.frame(0x03, bytes(9)))
            if hello == herald.handshake_sub(b"\xff", b""):
                self._subscriber = peer
                while peer.recv(64):
                    pass
                return
            size = len(herald.publish(255, bytes(100)))
            waiting, count = b"", 0
            while more := peer.recv(65_536):
                waiting += more
                whole = len(waiting) // size
                kept = (count + whole + 1) // 2 - (count + 1) // 2
                assert self._subscriber is not None
                self._subscriber.sendall(herald.frame(0x10, bytes(109)) * kept)
                count += whole
                waiting = waiting[whole * size :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def test_messages_that_do_not_arrive_are_told_and_end_with_one() -> None:
    program = (
        "import penstock.cli.bench.load as load; load.BENCH_QUIET_SECONDS_MAX = 0.5; "
        "from penstock.cli.main import main; main()"
    )
    with Lossy() as broker:
        arguments = ["bench", "--protocol", "herald", "--seconds", "0.1", "--rate", "0", "--json"]
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program, *arguments, "--url", at(broker.address)],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["delivered"] <= result["published"] / 2 + 1
    assert result["lost"] == result["published"] - result["delivered"]
    assert result["latency_ms"] is None


@pytest.fixture
def strict() -> Iterator[LiveBroker]:
    with LiveBroker(options=GatewayOptions(messages_per_second_max=10)) as broker:
        yield broker


def test_a_refused_publish_is_one_line(strict: LiveBroker) -> None:
    done = run("bench", *QUICK, "--protocol", "herald", "--url", at(strict.address))
    assert (done.code, done.out) == (2, b"")
    assert done.err == (
        "penstock: herald: the broker refused a publish; see the log of the broker\n"
    )


@pytest.mark.parametrize("protocol", LABELS)
def test_a_broker_that_lets_nobody_in_is_one_line(protocol: str) -> None:
    with LiveBroker(options=GatewayOptions(anonymous=None)) as closed:
        place = at(closed.address)
        done = run("bench", *QUICK, "--protocol", protocol, "--url", place)
    assert (done.code, done.out) == (2, b"")
    where = ", or not to channel/255" if protocol == "herald" else ""
    assert done.err == (
        f"penstock: the broker at {place} does not accept anonymous clients{where}; "
        "bench sends no credentials: use a listener that accepts anonymous clients\n"
    )


class Other:
    """A server of another protocol: it has one answer to everything, and closes behind it."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                if peer.recv(4096):
                    peer.sendall(self._answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@pytest.mark.parametrize("protocol", LABELS)
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xac",
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        bytes.fromhex("000012040000000000000300000064000400400000000600004000"),
    ],
)
def test_a_server_of_another_protocol_is_one_line(
    commands: Commands, protocol: str, answer: bytes
) -> None:
    with Other(answer) as other:
        line = commands.run("bench", "--protocol", protocol, "--url", at(other.address))
    assert line.error_line() == (
        f"the broker at {at(other.address)} does not speak {protocol}; "
        f"give --url a {protocol} listener, or --protocol what it speaks"
    )


def test_a_server_that_never_answers_is_one_line(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_load, "BENCH_HANDSHAKE_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = at(listener.getsockname())
        line = commands.run("bench", "--protocol", "lamamq", "--url", place).error_line()
    assert line == (
        f"the broker at {place} does not answer a lamamq client without credentials; "
        "bench sends no credentials: use a listener that accepts anonymous clients"
    )


def test_whatever_goes_wrong_in_a_process_of_the_load_is_one_line(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(bench_load, "_subscribe", broken)
    with LiveBroker() as broker:
        arguments = (*QUICK, "--protocol", "rheos1", "--url", at(broker.address))
        line = commands.run("bench", *arguments).error_line()
    assert line == ("rheos1: ValueError: nobody thought of this; see the log of the broker")


def test_too_many_deliveries_are_a_fault_too() -> None:
    def figures(delivered: int, acknowledged: int | None) -> Figures:
        return Figures(10, acknowledged, delivered, 1.0, 1.0, array("d"))

    assert _lost(figures(20, 10), subscribers=2) == 0
    assert _lost(figures(20, None), subscribers=2) == 0
    assert _lost(figures(21, 10), subscribers=2) == 1
    assert _lost(figures(19, 8), subscribers=2) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--protocol", "mqtt"], "'mqtt' is none of rheos1"),
        (["--topic", "plant/a"], "'plant/a' is no herald channel"),
        (["--durability", "disk"], "is fsync, os or memory"),
        (["--durability", "os", "--url", "tcp://127.0.0.1:1"], "leave it out with --url"),
        (["--url", "ws://127.0.0.1:1/ws"], "bench connects by tcp, without credentials"),
        (["--url", "127.0.0.1"], "Give one such as tcp://127.0.0.1:7000"),
        (["--url", "tcp://127.0.0.1:1"], "no connection to tcp://127.0.0.1:1: Connection refused"),
        (["--size", "7"], "--size"),
        (["--rate", "200000", "--seconds", "60"], "makes more than 10,000,000 messages"),
        (["--subscribers", "0"], "--subscribers"),
    ],
)
def test_what_cannot_be_is_one_line(commands: Commands, arguments: list[str], said: str) -> None:
    assert said in commands.run("bench", *arguments).error_line()
