"""A broker process with a small memory budget, and the figures of its memory."""

import http.client
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.support.served import HOST, SECONDS_MAX, free_port, until

MIB = 1024 * 1024


class BudgetedBroker:
    """`with BudgetedBroker(folder, bytes_max=128 * MIB) as broker:`, a process of its own."""

    def __init__(self, folder: Path, *, bytes_max: int, settings: str = "") -> None:
        self.address = HOST, free_port()
        self.web = HOST, free_port()
        self.bytes_max = bytes_max
        self._folder = folder
        self._file = folder / "penstock.toml"
        self._file.write_text(
            f"""
            [broker]
            durability = "os"
            [data]
            folder = "data"
            [limits]
            memory_bytes_max = {bytes_max}
            {settings}
            [[listener]]
            url = "tcp://{HOST}:{self.address[1]}"
            [[listener]]
            url = "ws://{HOST}:{self.web[1]}/ws"
            """
        )
        self._process: subprocess.Popen[bytes]
        self.base_bytes = 0
        """Memory of the process before the first attack."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "penstock.cli", "serve", "--config", str(self._file)]
        output = self._folder / "output.txt"
        with output.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603
        process = self._process
        until(lambda: "Ready." in output.read_text() or process.poll() is not None, "a broker")
        assert process.poll() is None, output.read_text()
        self.metrics()  # imports the libraries of HTTP
        self.base_bytes = self.peak_bytes
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(SECONDS_MAX)

    @property
    def peak_bytes(self) -> int:
        """The most memory that the process had at a time."""
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        """Count the peak from now on."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    @property
    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def metrics(self) -> dict[str, float]:
        """The broker's own metrics, by name and labels."""
        connection = http.client.HTTPConnection(*self.web, timeout=SECONDS_MAX)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        lines = [line for line in text.splitlines() if line.startswith("penstock_")]
        return {name: float(number) for name, number in (line.rsplit(" ", 1) for line in lines)}

    def until_returned(self, *, seconds_max: float = SECONDS_MAX) -> None:
        """Wait until no client holds anything: only the fixed parts are drawn."""
        deadline = time.monotonic() + seconds_max
        while True:
            found = self.metrics()
            purposes = ("input", "output", "answers", "requests", "hooks")
            held = {each: found[f'penstock_memory_bytes{{purpose="{each}"}}'] for each in purposes}
            held.pop("http", None)
            if not any(held.values()) and not found["penstock_memory_waiting"]:
                return
            assert time.monotonic() < deadline, held
            time.sleep(0.05)
