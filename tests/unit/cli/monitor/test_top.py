"""`penstock top`: one frame, several, as JSON, and live on a terminal."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.storage.group_offsets import GroupOffsets
from tests.support import lamamq_bytes
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker
from tests.support.running import PENSTOCK, Running, environment

QUICK = ("--interval", "0.2")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HttpBroker]:
    with HttpBroker(data=tmp_path) as live:
        yield live


@contextmanager
def traffic(broker: HttpBroker, topic: bytes = b"sensors/\x1b[31m") -> Iterator[None]:
    """Messages come one after the other, until the end."""
    done = threading.Event()

    def send() -> None:
        with lamamq_bytes.client(broker, b"sender") as sender:
            while not done.is_set():
                sender.request(lamamq_bytes.push(0, topic, b"12345"))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(5)


def test_a_frame_shows_protocols_topics_and_groups(
    commands: Commands, broker: HttpBroker, tmp_path: Path
) -> None:
    GroupOffsets(tmp_path).commit("job", {0: 0})
    with lamamq_bytes.subscriber(broker, b"none"), traffic(broker):
        done = commands.run("top", "--once", *QUICK, "--url", broker.url)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(broker.url)
    assert "(0 slow)" in lines[1]
    assert "syncs/s" in lines[2]
    rows = {line.split()[0]: line.split() for line in lines[3:] if line}
    assert rows["PROTOCOL"][:3] == ["PROTOCOL", "CLIENTS", "IN/S"]
    assert rows["herald"][1:3] == ["0", "0"]
    assert int(rows["lamamq"][1]) >= 1
    assert rows["lamamq"][2] != "0"
    assert rows[r"sensors/\x1b[31m"][1] == "0"
    assert rows["job"][1] != "0"
    assert "\x1b" not in done.out


def test_json_is_an_object_a_line(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("top", "--json", "--count", "3", *QUICK, "--url", broker.url)
    assert (done.code, done.err) == (0, "")
    frames = [json.loads(line) for line in done.out.splitlines()]
    assert len(frames) == 3
    for frame in frames:
        assert 0.1 < frame["seconds"] < 5
        assert {"protocols", "topics", "groups", "slow"} <= frame.keys()
    assert frames[0]["time"] < frames[1]["time"] < frames[2]["time"]


def test_a_slow_client_is_shown(commands: Commands, broker: HttpBroker) -> None:
    with (
        lamamq_bytes.subscriber(broker, b"big"),
        lamamq_bytes.client(broker, b"sender") as sender,
    ):
        deadline = time.monotonic() + 10
        while not broker.get("/api/clients?slow=true").json()["clients"]:
            sender.request(lamamq_bytes.push(0, b"big", bytes(1_000_000)))
            assert time.monotonic() < deadline
        done = commands.run("top", "--once", *QUICK, "--url", broker.url)
    assert "(1 slow)" in done.out
    (row,) = [line for line in done.out.splitlines() if line.endswith("subscriber")]
    assert row.split()[7 if "MiB" in row else 6] == "slow"


def test_on_a_terminal_it_is_drawn_until_interrupted(broker: HttpBroker) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock.cli", "top", *QUICK, "--url", broker.url]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)  # noqa: S603
    os.close(theirs)
    seen = b""
    try:
        deadline = time.monotonic() + 10
        while seen.count(b"PROTOCOL") < 2:  # drawn, and drawn anew
            assert time.monotonic() < deadline, seen
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            assert time.monotonic() < deadline
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the terminal is closed
                process.wait(5)
    finally:
        process.kill()
        process.wait(5)
        os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[?1049h" in seen  # a screen of its own,
    assert b"\x1b[?1049l" in seen  # that is left again
    assert b"Traceback" not in seen


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_no_line_is_longer_than_the_80_columns_of_a_terminal(
    broker: HttpBroker, tmp_path: Path, terminal: str
) -> None:
    topic = b"plant/" + b"long-name/" * 12
    GroupOffsets(tmp_path).commit("group-" + "g" * 100, {0: 0})
    with (
        lamamq_bytes.client(broker, b"client-" + b"n" * 100) as slow,
        lamamq_bytes.client(broker, b"sender") as sender,
        traffic(broker, topic),
    ):
        slow.request(lamamq_bytes.subscribe(0, topic))
        deadline = time.monotonic() + 10
        while not broker.get("/api/clients?slow=true").json()["clients"]:
            sender.request(lamamq_bytes.push(0, topic, bytes(1_000_000)))
            assert time.monotonic() < deadline
        lines = on_a_terminal(terminal, "top", "--once", *QUICK, "--url", broker.url)
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("plant/")]
    assert "…" in row
    (row,) = [line for line in lines if line.startswith("group-")]
    assert "…" in row
    (row,) = [line for line in lines if "client-" in line]
    assert (row.count("…"), "slow" in row, "lamamq" in row) == (1, True, True)


def on_a_terminal(terminal: str, *arguments: str) -> list[str]:
    """Run a command on a terminal of 80 columns; return its lines, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(  # noqa: S603
        [*PENSTOCK, *arguments], stdout=theirs, stderr=theirs, env=environment(TERM=terminal)
    )
    os.close(theirs)
    seen = b""
    try:
        with contextlib.suppress(OSError):  # the terminal is closed
            while more := os.read(ours, 65536):
                seen += more
        assert process.wait(5) == 0, seen
    finally:
        process.kill()
        process.wait(5)
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).splitlines()


def test_when_the_broker_goes_it_says_so(commands: Commands) -> None:
    with HttpBroker() as broker:
        url = broker.url
        assert commands.run("top", "--once", *QUICK, "--url", url).code == 0
    assert "no broker answers" in commands.run("top", "--url", url).error_line()


def test_when_the_broker_goes_meanwhile_it_says_that_the_connection_was_lost() -> None:
    with HttpBroker() as broker:
        command = Running("top", *QUICK, "--json", "--url", broker.url)
        assert "protocols" in json.loads(command.line())
    with command:
        code, said = command.wait()
    assert code == 2
    assert said.startswith(f"penstock: the connection to {broker.url} was lost: ")
    assert said.count("\n") == 1


def test_on_a_terminal_that_can_do_nothing_lines_are_printed(broker: HttpBroker) -> None:
    ours, theirs = pty.openpty()
    command = [*PENSTOCK, "top", *QUICK, "--count", "2", "--url", broker.url]
    process = subprocess.Popen(  # noqa: S603
        command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "dumb"}
    )
    os.close(theirs)
    seen = b""
    try:
        with contextlib.suppress(OSError):  # the terminal is closed
            while more := os.read(ours, 65536):
                seen += more
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait(5)
        os.close(ours)
    assert seen.count(b"PROTOCOL") == 2
    assert b"\x1b" not in seen
