"""The console beside the broker: it shows the story while it happens."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from examples.demo.broker import HOST, Broker, port_or_any
from examples.demo.processes import penstock
from examples.demo.screen import line

__all__ = ["console"]

START_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05
USUAL_PORT = 7070


@asynccontextmanager
async def console(broker: Broker, folder: Path, *, usual_ports: bool) -> AsyncIterator[str]:
    """Run the console in the context, which is its address.

    Without its packages the address is empty, and the demo goes on.
    """
    output = folder / "console.txt"
    port = port_or_any(USUAL_PORT) if usual_ports else 0
    arguments = ["console", "--url", broker.http, "--listen", f"{HOST}:{port}"]
    with penstock(*arguments, "--warehouse", str(folder / "warehouse"), output=output) as process:
        async with asyncio.timeout(START_SECONDS_MAX):
            while process.poll() is None and " is at " not in output.read_text():
                await asyncio.sleep(POLL_SECONDS)
        found = re.search(r" is at (\S+)", output.read_text())
        line(f"{found[1]} is the console." if found else output.read_text().strip())
        yield found[1] if found else ""
