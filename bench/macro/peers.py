"""Brokers under test: started for one benchmark on a free port, and stopped after it."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
BUILT = Path(__file__).parents[2] / "build" / "peers"
NATS_BUILT = BUILT / "nats-server"
NATS_MODULE = "github.com/nats-io/nats-server/v2"
NATS_CHECKED = BUILT / "nats-checked"
"""Touched when the newest version of nats-server was asked for."""
CHECK_SECONDS = 86_400
ANSWER_SECONDS_MAX = 30
NATS_SETTINGS = 'max_pending: 256MB\nwrite_deadline: "60s"\n'
"""A slow subscriber is not disconnected, which would end a measurement. All else is default."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def penstock_process() -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run `penstock serve` without a log and without HTTP; yield its process and port."""
    port = free_port()
    command = [sys.executable, "-m", "penstock.cli", "serve"]
    command += ["--listen", f"tcp://{HOST}:{port}", "--durability", "memory"]
    with _process(command, port) as process:
        yield process, port


@contextlib.contextmanager
def penstock() -> Iterator[int]:
    """Run `penstock serve` without a log and without HTTP; yield its port."""
    with penstock_process() as (_, port):
        yield port


def build_newest_nats() -> None:
    """Build the newest nats-server, if Go is installed. The first time it takes minutes.

    Its version is asked for once a day. Without an answer, what was built before is used.
    """
    go = shutil.which("go")
    if go is None or _is_recent(NATS_CHECKED):
        return
    newest = _newest_nats(go)
    if newest and not (NATS_BUILT.exists() and nats_version() == newest):
        print(f"building nats-server {newest} with Go", file=sys.stderr)
        BUILT.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(BUILT)}
        command = [go, "install", f"{NATS_MODULE}@{newest}"]
        if subprocess.run(command, env=environment, check=False).returncode:  # noqa: S603
            newest = ""
    if newest:
        NATS_CHECKED.touch()
    else:
        used = f"{nats_path()} {nats_version()}"
        print(f"the newest nats-server cannot be had: {used} is used", file=sys.stderr)


def _is_recent(stamp: Path) -> bool:
    return stamp.exists() and time.time() - stamp.stat().st_mtime < CHECK_SECONDS


def _newest_nats(go: str) -> str:
    """Return the newest version that Go's module proxy knows, or nothing without an answer."""
    command = [go, "list", "-m", "-f", "{{.Version}}", f"{NATS_MODULE}@latest"]
    with contextlib.suppress(subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=ANSWER_SECONDS_MAX, cwd="/"
        )
        return done.stdout.strip()
    return ""


def nats_path() -> str:
    """Return the nats-server that was built here, else the system's."""
    if NATS_BUILT.exists():
        return str(NATS_BUILT)
    path = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
    if path is None:
        raise SystemExit("nats-server is needed for this comparison: apt-get install nats-server")
    return path


def nats_version() -> str:
    """Return the version of the nats-server that is used."""
    answer = subprocess.run([nats_path(), "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    return answer.stdout.split()[-1]


def compiled(name: str) -> Path:
    """Compile a C program of this folder; return the path of the program."""
    built = BUILT / name
    BUILT.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", built, source], check=True)  # noqa: S603, S607
    return built


@contextlib.contextmanager
def bare_relay(read_bytes: int) -> Iterator[int]:
    """Compile and run the bare relay, which serves one pair of connections at a time."""
    port = free_port()
    with _process([str(compiled("relay")), str(port), str(read_bytes)], port):
        yield port


@contextlib.contextmanager
def nats_process() -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run nats-server; yield its process and port."""
    port = free_port()
    with nats_command(port) as command, _process(command, port) as process:
        yield process, port


@contextlib.contextmanager
def nats_server() -> Iterator[int]:
    """Run nats-server; yield its port."""
    with nats_process() as (_, port):
        yield port


@contextlib.contextmanager
def nats_command(port: int) -> Iterator[list[str]]:
    """Yield the command of a nats-server with NATS_SETTINGS."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        config = Path(folder) / "nats.conf"
        config.write_text(NATS_SETTINGS)
        yield [nats_path(), "-a", HOST, "-p", str(port), "-c", str(config)]


def redis_path() -> str:
    return _system_path("redis-server")


def redis_version() -> str:
    """Return the version of the redis-server that is used."""
    answer = subprocess.run([redis_path(), "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    return answer.stdout.split("v=")[1].split()[0]


def mosquitto_version() -> str:
    """Return the version of the Mosquitto that is used."""
    path = _system_path("mosquitto")
    answer = subprocess.run([path, "-h"], capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.split()[2]


def _system_path(program: str) -> str:
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if path is None:
        raise SystemExit(f"{program} is needed for this comparison: apt-get install {program}")
    return path


@contextlib.contextmanager
def redis_server() -> Iterator[int]:
    """Run redis-server for publish and subscribe: no files, no limit for slow subscribers."""
    port = free_port()
    command = [redis_path(), "--port", str(port), "--bind", HOST, "--save", ""]
    command += ["--appendonly", "no", "--client-output-buffer-limit", "pubsub 0 0 0"]
    with _process(command, port):
        yield port


@contextlib.contextmanager
def mosquitto() -> Iterator[int]:
    """Run Mosquitto without files; it drops nothing for slow subscribers."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        config = Path(folder) / "mosquitto.conf"
        config.write_text(
            f"listener {port} {HOST}\nallow_anonymous true\npersistence false\nlog_dest none\n"
            "max_queued_messages 0\nset_tcp_nodelay true\n"
        )
        with _process([_system_path("mosquitto"), "-c", str(config)], port):
            yield port


@contextlib.contextmanager
def _process(command: list[str], port: int) -> Iterator["subprocess.Popen[bytes]"]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
        try:
            _wait_until_ready(process, port)
            yield process
        finally:
            process.terminate()
            process.wait(10)


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{process.args!r} did not start") from None
            time.sleep(0.02)
        else:
            return
