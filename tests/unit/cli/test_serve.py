"""`penstock serve` as an operator sees it: a real process, its output and how it ends."""

import os
import queue
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from penstock.conform.herald.encoding import DISCONNECT
from tests.support.served import free_port

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
ANY_PORT = "tcp://127.0.0.1:0"
SECONDS_MAX = 10.0
FOLDER = tempfile.TemporaryDirectory(prefix="penstock-test-")
"""Where the brokers of this module keep what they get, one after the other."""


def environment(**more: str) -> dict[str, str]:
    """The environment of the tests, without settings of whoever runs them."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {"PENSTOCK_DATA__FOLDER": FOLDER.name, **plain, **more}


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [*PENSTOCK, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment(**more),
    )


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that an operator must set right, beside the event `starting`."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = (each for each in done.stderr.splitlines() if "event=starting" not in each)
    assert line.startswith("penstock: ")
    return line.removeprefix("penstock: ")


class Process:
    """A broker in a process of its own, whose lines are waited for with a deadline."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self.started = time.monotonic()
        self.popen = subprocess.Popen(  # noqa: S603
            [*PENSTOCK, "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**more),
        )
        self.lines: list[str] = []
        self._fresh: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(pipe,), daemon=True)
            for pipe in (self.popen.stdout, self.popen.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: Iterator[str]) -> None:
        for line in pipe:
            self._fresh.put(line.rstrip("\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.popen.kill()
        self.popen.wait(SECONDS_MAX)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        for pipe in (self.popen.stdout, self.popen.stderr):
            assert pipe is not None
            pipe.close()

    def wait_for(self, fits: Callable[[str], object]) -> str:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                line = self._fresh.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"it did not come: {self.lines}") from None
            self.lines.append(line)
            if fits(line):
                return line

    def ready(self) -> float:
        """Wait until it is; return the seconds since its start."""
        if "Ready." not in self.lines:
            self.wait_for(lambda line: line == "Ready.")
        return time.monotonic() - self.started

    def port(self) -> int:
        match = re.search(r"listen  tcp://127\.0\.0\.1:(\d+)", "\n".join(self.lines))
        assert match is not None, self.lines
        return int(match[1])

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds it took."""
        sent = time.monotonic()
        self.popen.send_signal(number)
        return self.popen.wait(SECONDS_MAX), time.monotonic() - sent


def herald_subscriber(port: int) -> socket.socket:
    """A herald client on channel 7 that has its answer: HANDSHAKE_SUB, little-endian."""
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    body = b"\x01\x07" + b"\x01x"
    client.sendall(struct.pack("<HBI", 0xCAFE, 0x02, len(body)) + body)
    assert client.recv(16)[:3] == b"\xfe\xca\x03"
    return client


# --- Start and stop ---------------------------------------------------------------------------


def test_the_banner_lists_listeners_data_folder_and_http(tmp_path: Path) -> None:
    folder = str(tmp_path / "messages")
    with Process(
        "--listen", ANY_PORT, "--listen", f"{ANY_PORT}?protocol=herald",
        "--data", folder, "--http", "127.0.0.1:7099",
    ) as broker:  # fmt: skip
        broker.ready()
        # Events are on standard error, and may come between the lines of the banner.
        text = "\n".join(line for line in broker.lines if not line.startswith("timestamp="))
        assert text.startswith("Penstock ")
        listeners = re.findall(
            r"^  listen  tcp://127\.0\.0\.1:([1-9]\d*)  +(.*)$", text, re.MULTILINE
        )
        assert [spoken for _, spoken in listeners] == [
            "rheos1, rheos2, fleximq, herald, lamamq",
            "herald",
        ]
        assert f"  data    {folder}" in text
        assert "  http    http://127.0.0.1:7099" in text
        for port, _ in listeners:
            herald_subscriber(int(port)).close()


def test_every_transport_listens(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with Process(
        "--listen", ANY_PORT, "--listen", "udp://127.0.0.1:0", "--listen", "ws://127.0.0.1:0/ws",
        "--listen", f"ipc://{path}",
    ) as broker:  # fmt: skip
        broker.ready()
        text = "\n".join(broker.lines)
        for pattern in (
            r"udp://127\.0\.0\.1:[1-9]\d*",
            r"ws://127\.0\.0\.1:[1-9]\d*/ws",
            str(path),
        ):
            assert re.search(pattern, text), text
        assert path.is_socket()
        assert broker.end(signal.SIGTERM)[0] == 0
        assert not path.exists()


def test_programs_of_the_file_are_started_and_stopped(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        f'[[listener]]\nurl = "{ANY_PORT}"\n[[program]]\nenv = {{ WORD = "hello" }}\nfolder = "."\n'
        'command = ["sh", "-c", "echo $WORD $PENSTOCK_CLIENT_ID $PWD >&2; exec cat >/dev/null"]\n'
    )
    with Process("--config", str(file)) as broker:
        line = broker.wait_for(lambda line: "hello" in line and "event=" in line)
        assert re.search(rf"hello [1-9]\d{{3,}} {tmp_path}", line), line
        broker.ready()
        code, seconds = broker.end(signal.SIGTERM)
        assert (code, seconds < 4) == (0, True)


def test_it_is_ready_within_a_second() -> None:
    # Others use this machine too: what counts is the best of three, or, where all three had to
    # wait for a processor, the processor time that was needed.
    tries = []
    for _ in range(3):
        with Process("--listen", ANY_PORT) as broker:
            seconds = broker.ready()
            fields = Path(f"/proc/{broker.popen.pid}/stat").read_text().rpartition(")")[2].split()
            busy = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        tries.append((seconds, busy))
        if seconds < 1.0:
            return
    assert min(busy for _, busy in tries) < 0.8, f"(seconds, of them busy): {tries}"


def test_it_takes_less_than_120_mib() -> None:
    with Process("--listen", ANY_PORT) as broker:
        broker.ready()
        status = Path(f"/proc/{broker.popen.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        assert int(match[1]) < 120 * 1024


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_0_and_soon(number: signal.Signals) -> None:
    with Process("--listen", ANY_PORT) as broker:
        broker.ready()
        with herald_subscriber(broker.port()) as client:
            code, seconds = broker.end(number)
            assert code == 0
            assert seconds < 3
            assert client.recv(100) == DISCONNECT
            assert client.recv(100) == b"", "clients see the end"
        assert not any("Traceback" in line for line in broker.lines)


def test_sigterm_tells_publishers_and_udp_clients_too() -> None:
    handshake = struct.pack("<HBI", 0xCAFE, 0x01, 62) + b"\x07" + bytes([60]) + b"p" * 60
    with Process("--listen", ANY_PORT, "--listen", "udp://127.0.0.1:0") as broker:
        broker.ready()
        match = re.search(r"udp://127\.0\.0\.1:(\d+)", "\n".join(broker.lines))
        assert match is not None, broker.lines
        with (
            socket.create_connection(("127.0.0.1", broker.port()), timeout=5) as publisher,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor,
        ):
            sensor.settimeout(5)
            sensor.connect(("127.0.0.1", int(match[1])))
            for client in (publisher, sensor):
                client.send(handshake)
                assert client.recv(16)[:3] == b"\xfe\xca\x03"
            assert broker.end(signal.SIGTERM)[0] == 0
            for client in (publisher, sensor):
                assert client.recv(100) == DISCONNECT


def test_the_port_can_be_had_again_at_once() -> None:
    with Process("--listen", ANY_PORT) as broker:
        broker.ready()
        port = broker.port()
        with herald_subscriber(port):
            assert broker.end(signal.SIGTERM)[0] == 0
    with Process("--listen", f"tcp://127.0.0.1:{port}") as broker:
        broker.ready()
        assert broker.port() == port


# --- SIGHUP -----------------------------------------------------------------------------------


def test_sighup_reloads_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    listener = f'[[listener]]\nurl = "{ANY_PORT}"\n'
    file.write_text(listener)
    with Process("--config", str(file)) as broker:
        broker.ready()
        port = broker.port()
        file.write_text(listener + "[broker]\nsubscriptions_max = 1\n[log]\nbytes_max = 1\n")
        broker.popen.send_signal(signal.SIGHUP)
        line = broker.wait_for(lambda line: "event=reloaded" in line)
        assert "broker.subscriptions_max" in line
        assert "needs_restart=['log.bytes_max']" in line
        file.write_text("[broker]\nnonsense = 1\n")
        broker.popen.send_signal(signal.SIGHUP)
        line = broker.wait_for(lambda line: 'event="not reloaded"' in line)
        assert "broker.nonsense: unknown key" in line
        herald_subscriber(port).close()
        assert broker.end(signal.SIGTERM)[0] == 0


def test_metrics_tell_when_the_last_reload_was_and_whether_it_worked(tmp_path: Path) -> None:
    file, port = tmp_path / "penstock.toml", free_port()
    valid = f'[[listener]]\nurl = "{ANY_PORT}"\n[http]\naddress = "127.0.0.1:{port}"\n'

    def last_reload() -> tuple[float, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        start = "penstock_config_last_reload_"
        return float(lines[f"{start}success"]), float(lines[f"{start}timestamp_seconds"])

    file.write_text(valid)
    with Process("--config", str(file)) as broker:
        broker.ready()
        first, started_at = last_reload()
        file.write_text("[broker]\nnonsense = 1\n")
        broker.popen.send_signal(signal.SIGHUP)
        broker.wait_for(lambda line: 'event="not reloaded"' in line)
        second, failed_at = last_reload()
        file.write_text(valid)
        broker.popen.send_signal(signal.SIGHUP)
        broker.wait_for(lambda line: "event=reloaded" in line)
        third, reloaded_at = last_reload()
        assert broker.end(signal.SIGTERM)[0] == 0
    assert (first, second, third) == (1, 0, 1)
    assert started_at < failed_at < reloaded_at


def test_sighup_ends_the_anonymous_rules_that_were(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    listener = f'[[listener]]\nurl = "{ANY_PORT}"\n'
    file.write_text(listener)
    with Process("--config", str(file)) as broker:
        broker.ready()
        herald_subscriber(broker.port()).close()
        file.write_text(listener + '[anonymous]\ndefault = "deny"\n')
        broker.popen.send_signal(signal.SIGHUP)
        broker.wait_for(lambda line: "event=reloaded" in line)
        with socket.create_connection(("127.0.0.1", broker.port()), timeout=5) as client:
            client.sendall(bytes.fromhex("feca 02 04000000 01 07 01 78"))
            # HANDSHAKE_ACK, not a success, error 0x08 UNAUTHORIZED
            answer = client.recv(16)
            assert answer[:3] == b"\xfe\xca\x03"
            assert answer[7] == 0x08


# --- What an operator must set right ----------------------------------------------------------


def test_a_port_in_use_is_one_line_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = error_line(run("serve", "--listen", f"tcp://127.0.0.1:{port}"))
    assert line == (
        f"cannot listen on tcp://127.0.0.1:{port}: another process listens there; "
        "stop it or choose another port"
    )


def test_an_address_of_another_machine_is_one_line() -> None:
    line = error_line(run("serve", "--listen", "tcp://192.0.2.1:7000?anonymous=true"))
    assert line.startswith("cannot listen on tcp://192.0.2.1:7000: ")


def test_a_log_that_another_broker_writes_is_one_line(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with Process("--listen", ANY_PORT, "--data", folder) as first:
        first.wait_for(lambda line: line == "Ready.")
        line = error_line(run("serve", "--listen", ANY_PORT, "--data", folder))
    assert line == f"another process writes the log in {folder}/log/0: stop it, or give --data"


def test_a_wrong_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[broker]\nsessions_max = 0\n")
    line = error_line(run("serve", "--config", str(file)))
    assert line == f"{file}:2: broker.sessions_max: expected a whole number of at least 1, got 0"


def test_a_missing_file_is_one_line() -> None:
    line = error_line(run("serve", "--config", "/nowhere/penstock.toml"))
    assert line.startswith("/nowhere/penstock.toml: cannot be read: no such file or directory")


def test_a_wrong_environment_variable_is_one_line() -> None:
    line = error_line(run("serve", PENSTOCK_BROKER__SESSIONS_MAX="many"))
    assert line.startswith("PENSTOCK_BROKER__SESSIONS_MAX: broker.sessions_max: expected a whole")


def test_an_open_listener_is_one_line_with_the_remedy() -> None:
    line = error_line(run("serve", "--listen", "tcp://0.0.0.0:7000"))
    assert "add a [[principal]], set anonymous = true, or listen on 127.0.0.1" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--nonsense"),
        ("serve", "extra"),
        ("serve", "--listen"),
        ("serve", "--listen", "nonsense"),
        ("serve", "--durability", "disk"),
        ("nonsense",),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: tuple[str, ...]) -> None:
    assert error_line(run(*arguments))


# --- --check ----------------------------------------------------------------------------------


def test_check_only_checks(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f'[[listener]]\nurl = "tcp://127.0.0.1:{port}"\n')
        done = run("serve", "--check", "--config", str(file), "--data", str(tmp_path / "data"))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"tcp://127.0.0.1:{port}" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["penstock.toml"]


def test_check_finds_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[broker]\nnonsense = 1\n")
    assert "broker.nonsense: unknown key" in error_line(
        run("serve", "--check", "--config", str(file))
    )
