"""`penstock serve` as a process of its own that is killed and comes back at the same addresses."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
SECONDS_MAX = 20.0
START_SECONDS_MAX = 120.0
"""A broker that is slow to start on a loaded machine is no fault."""


def until(
    condition: Callable[[], object],
    what: str,
    *,
    seconds_max: float = SECONDS_MAX,
    look_seconds: float = 0.002,
) -> None:
    """Wait for a condition, looking every so often; it must come true in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(look_seconds)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Served:
    """A broker with tables and a data folder; `start` and `kill` it as often as needed.

    `config` is the text of its penstock.toml; another one applies from the next start.
    """

    def __init__(self, folder: Path, config: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self.config = config
        self.address = HOST, free_port()
        self.endpoint = f"grpc://{HOST}:{free_port()}"
        self._output = folder / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def output(self) -> str:
        return self._output.read_text()

    def start(self) -> None:
        """Start it, and wait until it takes clients."""
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        command += ["--listen", f"tcp://{HOST}:{self.address[1]}", "--data", str(self.data)]
        command += ["--flight", self.endpoint.removeprefix("grpc://")]
        file = self.data.with_name("penstock.toml")
        file.write_text(self.config)
        command += ["--config", str(file)] if self.config else []
        with self._output.open("wb") as out:
            self._process = process = subprocess.Popen(  # noqa: S603
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith("PENSTOCK_")
                },
            )
        until(
            lambda: "Ready." in self.output or process.poll() is not None,
            "a broker",
            seconds_max=START_SECONDS_MAX,
        )
        assert process.poll() is None, self.output

    def kill(self) -> None:
        """Kill -9; nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(SECONDS_MAX)

    def signal(self, number: int) -> None:
        """Send a signal to its process: SIGSTOP and SIGCONT, for example."""
        assert self._process is not None
        self._process.send_signal(number)

    def restart(self) -> None:
        """Kill it, and start it again on the same folder and ports."""
        self.kill()
        self.start()
