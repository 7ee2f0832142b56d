"""Log events never block the event loop: neither a full pipe nor a flood of events."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import structlog

from penstock.cli.common.log_output import EventRateLimit, LineWriter
from tests.support.live import Peer
from tests.support.served import free_port, until


def test_a_reader_that_hangs_delays_no_writer() -> None:
    reading, writing = os.pipe()
    writer = LineWriter(writing, lines_max=50)
    started = time.monotonic()
    for number in range(10_000):
        writer.write(f"{number} {'x' * 1000}\n")
    assert time.monotonic() - started < 2
    found = b""
    while b"left out" not in found:
        found += os.read(reading, 1 << 16)
    lines = found.decode().splitlines()
    assert lines[0].startswith("0 ")
    assert any("log events left out" in line and "count=" in line for line in lines)
    writer.close()
    os.close(writing)
    os.close(reading)


def test_lines_that_wait_are_written_before_the_end() -> None:
    reading, writing = os.pipe()
    writer = LineWriter(writing)
    for number in range(100):
        writer.write(f"{number}\n")
    writer.close()
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read().split() == [str(number) for number in range(100)]


def test_lines_that_follow_each_other_closely_are_written_together() -> None:
    """Each time the thread wakes up, the event loop waits for the interpreter lock."""
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reading, writing:
        writer = LineWriter(writing.fileno())
        for number in range(100):
            writer.write(f"{number}\n")
        first, rest = reading.recv(1 << 16), reading.recv(1 << 16)
        assert first == b"0\n", "the first one does not wait"
        assert rest.split() == [b"%d" % number for number in range(1, 100)]
        writer.close()


def test_events_of_one_name_beyond_the_limit_are_counted() -> None:
    limit = EventRateLimit(per_second_max=3)

    def logged(name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = limit(None, "info", {"event": name})
        except structlog.DropEvent:
            return None
        return found

    while time.monotonic() % 1 > 0.5:
        time.sleep(0.01)
    assert [logged("a") is not None for _ in range(5)] == [True] * 3 + [False] * 2
    assert logged("b") == {"event": "b"}
    while time.monotonic() % 1 < 0.5 or logged("b") is None:
        time.sleep(0.01)
    until(lambda: int(time.monotonic()) != limit._second, "the next second")
    assert logged("a") == {"event": "a", "not_logged": 2}


def test_a_broker_whose_standard_error_is_not_read_serves_on(tmp_path: Path) -> None:
    port = free_port()
    process = subprocess.Popen(  # noqa: S603
        [
            *(sys.executable, "-m", "penstock.cli", "serve", "--listen", f"tcp://127.0.0.1:{port}"),
            *("--data", str(tmp_path / "data")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: can_connect(port), "a listener")
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)  # holds about 30 events
        fill(port, 90)
        with Peer(("127.0.0.1", port)) as peer:  # a wrong first byte: refused, as always
            peer.send(b"zzzz")
            peer.expect_close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        if process.stderr is not None:
            process.stderr.close()


def can_connect(port: int) -> bool:
    try:
        Peer(("127.0.0.1", port)).socket.close()
    except OSError:
        return False
    return True


def fill(port: int, count: int) -> None:
    """Have more events logged than a pipe holds."""
    for _ in range(count):
        with Peer(("127.0.0.1", port)) as peer:
            peer.send(b"zzzz")
            peer.expect_close()
