"""Brokers that store messages on disk, each in its own folder, which is removed afterwards."""

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.macro.peers import HOST, free_port, nats_command

READY_SECONDS_MAX = 600
STOP_SECONDS_MAX = 60


class Store:
    """The process of a broker that stores messages on disk."""

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        self.port = port
        self.http_port = 0
        """The port of its HTTP API, if it has one."""
        self.folder = folder
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self._output, stderr=self._output)  # noqa: S603
        self.ready_seconds = self._wait_until_ready()
        """Seconds from the start of the process to its first accepted connection."""

    def _wait_until_ready(self) -> float:
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
            except OSError:
                late = time.monotonic() - self.started > READY_SECONDS_MAX
                if late or self.process.poll() is not None:
                    said = self.end(signal.SIGKILL)
                    raise SystemExit(f"{self.process.args!r} did not start: {said}") from None
                time.sleep(0.005)
            else:
                return time.monotonic() - self.started

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Stop the process and wait for it; return its output."""
        if self._output.closed:
            return ""
        self.process.send_signal(number)
        self.process.wait(STOP_SECONDS_MAX)
        self._output.seek(0)
        said = self._output.read().decode(errors="replace")
        self._output.close()
        return said


@contextlib.contextmanager
def data_folder() -> Iterator[Path]:
    """Create a folder on the disk for temporary files; remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        yield Path(name)


@contextlib.contextmanager
def penstock_store(
    durability: str = "fsync", *, folder: Path | None = None, config: str = ""
) -> Iterator[Store]:
    """`penstock serve` with its log; `config` is the text of a penstock.toml.

    Without a folder it gets a temporary one.
    """
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(data_folder())
        port, http_port = free_port(), free_port()
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        command += ["--listen", f"tcp://{HOST}:{port}", "--http", f"{HOST}:{http_port}"]
        command += ["--data", str(folder / "data"), "--durability", durability]
        if config:
            path = folder / "penstock.toml"
            path.write_text(config)
            command += ["--config", str(path)]
        store = Store(command, port, folder / "data")
        store.http_port = http_port
        stack.callback(store.end)
        yield store


@contextlib.contextmanager
def jetstream_store() -> Iterator[Store]:
    """nats-server with JetStream and its defaults."""
    port = free_port()
    with data_folder() as folder, nats_command(port) as command:
        store = Store([*command, "-js", "-sd", str(folder)], port, folder)
        try:
            yield store
        finally:
            store.end()
