"""Two nodes of one log on Kafka, as processes, and their addresses."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import examples.demo
from examples.demo.errors import DemoFailed
from examples.demo.processes import penstock

__all__ = ["Node", "node"]

CONFIG = Path(examples.demo.__file__).with_name("penstock.toml")
START_SECONDS_MAX = 120.0
POLL_SECONDS = 0.05


class Node(NamedTuple):
    """A node's process and its addresses."""

    process: subprocess.Popen[bytes]
    url: str
    flight: str


@asynccontextmanager
async def node(folder: Path, number: int, log: str) -> AsyncIterator[Node]:
    """Run a node of the log with this URL for the time of the context."""
    output = folder / f"node-{number}.txt"
    arguments = ["serve", "--config", str(CONFIG), "--storage", f"{log}?node={number}"]
    arguments += ["--listen", "tcp://127.0.0.1:0", "--flight", "127.0.0.1:0"]
    arguments += ["--data", str(folder / f"data-{number}")]
    # Subscribers see what is in Kafka: else a publisher could count on a message that vanishes.
    committed = {"PENSTOCK_STORAGE__DELIVER": "committed"}
    with penstock(*arguments, output=output, **committed) as process:
        async with asyncio.timeout(START_SECONDS_MAX):
            while "Ready." not in output.read_text():
                if process.poll() is not None:
                    raise DemoFailed(f"a node did not start: {output.read_text().strip()}")
                await asyncio.sleep(POLL_SECONDS)
        places = re.findall(r"(?:tcp|grpc)://\S+", output.read_text())
        found = {place.partition(":")[0]: place for place in places}
        yield Node(process, found["tcp"], found["grpc"])
