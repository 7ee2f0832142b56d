"""Chapter 1: start `penstock serve` as a process."""

import asyncio
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from examples.demo.errors import DemoFailed
from examples.demo.processes import penstock
from examples.demo.screen import chapter, line

__all__ = ["Broker", "broker", "port_or_any"]

HOST = "127.0.0.1"
START_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02


class Broker(NamedTuple):
    """A broker's process, its addresses and its data folder."""

    process: subprocess.Popen[bytes]

    url: str
    http: str
    flight: str
    data: Path


@asynccontextmanager
async def broker(folder: Path, *, usual_ports: bool) -> AsyncIterator[Broker]:
    """Start a broker with its data in `folder`; stop it at the end of the context."""
    chapter("1 A broker", "One process, one port: a client's first bytes identify its protocol.")
    ports = [port_or_any(usual) if usual_ports else 0 for usual in (7000, 7080, 7090)]
    tcp, http, flight = (f"{HOST}:{port}" for port in ports)
    arguments = ["serve", "--config", str(Path(__file__).with_name("penstock.toml"))]
    arguments += ["--listen", f"tcp://{tcp}", "--http", http, "--flight", flight]
    output = folder / "broker.txt"
    with penstock(*arguments, "--data", str(folder / "data"), output=output) as process:
        async with asyncio.timeout(START_SECONDS_MAX):
            while "Ready." not in output.read_text():
                if process.poll() is not None:
                    raise DemoFailed(f"the broker did not start: {output.read_text().strip()}")
                await asyncio.sleep(POLL_SECONDS)
        places = re.findall(r"(?:tcp|http|grpc)://\S+", output.read_text())
        found = {place.partition(":")[0]: place for place in places}
        line(f"{found['tcp']} accepts rheos1, rheos2, fleximq, herald and lamamq.")
        yield Broker(process, found["tcp"], found["http"], found["grpc"], folder / "data")


def port_or_any(usual: int) -> int:
    """Return the usual port, or 0 for any free one if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, usual))
        except OSError:
            return 0
    return usual
