"""SIGTERM ends a broker within `stop_seconds_max`, whatever hangs."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import herald_bytes as herald
from tests.support.running import PENSTOCK, environment

STOP_SECONDS = 1.0
MARGIN_SECONDS = 1.5
"""For a busy machine: the end of the process, and its notice."""
CONFIG = f"""
data.folder = "data"
limits.stop_seconds_max = {STOP_SECONDS}
http.address = "127.0.0.1:0"
[[listener]]
url = "tcp://127.0.0.1:0"
"""
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
HUNG_THREAD = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from penstock.cli import serving
ThreadPoolExecutor(1).submit(time.sleep, 60)  # as if in a file system that hangs
serving.run_broker(Path(sys.argv[1]), {})
"""


@contextlib.contextmanager
def broker(
    folder: Path, more: str = "", command: list[str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run a broker; give its process, TCP port and HTTP port."""
    config = folder / "penstock.toml"
    config.write_text(CONFIG + more)
    started = command or [*PENSTOCK, "serve", "--config"]
    with (folder / "events").open("wb") as events:
        process = subprocess.Popen(  # noqa: S603
            [*started, str(config)], stdout=subprocess.PIPE, stderr=events, env=environment()
        )
    try:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line.decode()
            if line == b"Ready.\n":
                break
        ports = re.findall(r"(?:listen  tcp|http    http)://127\.0\.0\.1:(\d+)", text)
        assert len(ports) == 2, text
        yield process, int(ports[0]), int(ports[1])
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def stop(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Send SIGTERM; return the exit code and the seconds it took."""
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    return process.wait(STOP_SECONDS + 20), time.monotonic() - sent


def test_clients_that_do_not_read_and_an_open_http_response(tmp_path: Path) -> None:
    with broker(tmp_path) as (process, tcp, web), contextlib.ExitStack() as stack:

        def dial(port: int) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", port), 5)
            return stack.enter_context(contextlib.closing(made))

        reader = dial(tcp)
        reader.sendall(herald.handshake_sub(b"\x07"))
        assert len(reader.recv(16)) == 16  # and never reads again
        publisher = dial(tcp)
        publisher.sendall(herald.handshake_pub(7))
        for _ in range(40):
            publisher.sendall(herald.publish(7, bytes(1_000_000)))
        page = dial(web)
        page.sendall(b"GET /api/rates?seconds=10 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page.settimeout(0.5)
        with pytest.raises(TimeoutError):
            page.recv(1)
        code, seconds = stop(process)
        assert (code, seconds < STOP_SECONDS + MARGIN_SECONDS) == (0, True), seconds


def test_a_program_that_ignores_its_end_and_sigterm(tmp_path: Path) -> None:
    program = f"""
[[program]]
name = "stubborn"
command = ["sh", "-c", "echo $$ > {tmp_path}/pid; {STUBBORN}"]
"""
    with broker(tmp_path, program) as (process, _, _):
        deadline = time.monotonic() + 10
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < deadline, "the program did not start"
            time.sleep(0.02)
        pid = int((tmp_path / "pid").read_text())
        code, seconds = stop(process)
        assert (code, seconds < STOP_SECONDS + MARGIN_SECONDS) == (0, True), seconds
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z", "the program lives on"


def test_a_thread_that_hangs(tmp_path: Path) -> None:
    hung = [sys.executable, "-c", HUNG_THREAD]
    with broker(tmp_path, command=hung) as (process, tcp, _):
        with socket.create_connection(("127.0.0.1", tcp), 5) as publisher:
            publisher.sendall(herald.handshake_pub(7) + herald.publish(7, b"kept"))
            publisher.sendall(herald.frame(0x20))
            assert publisher.recv(16)
        code, seconds = stop(process)
        assert (code, seconds < STOP_SECONDS + MARGIN_SECONDS) == (0, True), seconds
    assert "stop cut off" not in (tmp_path / "events").read_text()  # the log was closed before


def test_a_disk_that_hangs(tmp_path: Path) -> None:
    hung = [
        sys.executable,
        "-c",
        "import os, threading\n"
        "sync = os.fdatasync\n"
        f"hangs = lambda: os.path.exists('{tmp_path}/hangs')\n"
        "os.fdatasync = lambda fd: threading.Event().wait() if hangs() else sync(fd)\n"
        + HUNG_THREAD,
    ]
    with broker(tmp_path, command=hung) as (process, tcp, _):
        with socket.create_connection(("127.0.0.1", tcp), 5) as publisher:
            (tmp_path / "hangs").touch()
            publisher.sendall(herald.handshake_pub(7) + herald.publish(7, b"never synced"))
            publisher.sendall(herald.frame(0x20))
            assert publisher.recv(16)
            code, seconds = stop(process)
        assert (code, seconds < STOP_SECONDS + MARGIN_SECONDS) == (1, True), seconds
    assert "stop cut off" in (tmp_path / "events").read_text()
