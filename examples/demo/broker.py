"""Chapter 1: a broker, `penstock serve`, in a process of its own."""

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
from examples.demo.screen import chapter, seen

__all__ = ["Broker", "broker", "port_or_any"]

HOST = "127.0.0.1"
START_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.02


class Broker(NamedTuple):
    """A broker's process, and where it is."""

    process: subprocess.Popen[bytes]

    url: str
    http: str
    flight: str
    data: Path


@asynccontextmanager
async def broker(folder: Path, *, usual_ports: bool) -> AsyncIterator[Broker]:
    """Start a broker that keeps its messages below `folder`; it ends with the context."""
    chapter("1 A broker", "One process, one port: the first bytes of a client tell its protocol.")
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
                await asyncio.sleep(LOOK_SECONDS)
        places = re.findall(r"(?:tcp|http|grpc)://\S+", output.read_text())
        found = {place.partition(":")[0]: place for place in places}
        seen(f"{found['tcp']} takes rheos1, rheos2, fleximq, herald and lamamq.")
        yield Broker(process, found["tcp"], found["http"], found["grpc"], folder / "data")


def port_or_any(usual: int) -> int:
    """Return the usual port, or 0 for any if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, usual))
        except OSError:
            return 0
    return usual
