"""The last chapter: addresses, folders, and commands to try."""

import asyncio
import contextlib
import sys
from pathlib import Path

from examples.demo.broker import Broker
from examples.demo.errors import DemoFailed
from examples.demo.screen import chapter, line
from examples.demo.topics import ORDERS

__all__ = ["show", "wait"]

USUAL_URL = "tcp://127.0.0.1:7000"
QUERY = "select beer, litres, sender from orders"
POLL_SECONDS = 0.5


def show(
    broker: Broker, folder: Path, *, service_id: int, with_tables: bool, console: str = ""
) -> None:
    """Show the addresses and folders, and commands to try."""
    chapter("The broker is running", "So are the middleware and the service.")
    if console:
        line(f"console    {console}  in the browser: all of this, live")
    line(f"clients    {broker.url}")
    line(f"HTTP       {broker.http}/metrics  {broker.http}/api/topics")
    line(f"Flight     {broker.flight}")
    line(f"data       {broker.data}")
    commands = [
        "sub 'brewery/#' --replay earliest --count 5",
        f'pub {ORDERS} \'{{"beer": "stout", "litres": 900}}\'',
        f'req /price \'{{"beer": "pils", "litres": 2}}\' --as json --to {service_id}',
    ]
    if broker.url != USUAL_URL:
        commands = [f"{command} --url {broker.url}" for command in commands]
    if with_tables:
        line(f"warehouse  {folder / 'warehouse'}")
        config = folder / "pipeline.toml"
        commands.append(f"sql --config {config} '{QUERY}'")
    chapter("Try", "in another terminal:")
    for command in commands:
        line(f"{_program()} {command}")


def _program() -> str:
    """Return the path of `penstock`, relative to the current folder if possible."""
    program = Path(sys.executable).with_name("penstock")
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


async def wait(broker: Broker) -> None:
    """Wait for Ctrl-C; raise DemoFailed if the broker exits first."""
    line("")
    line("Ctrl-C stops everything and removes the data.")
    with contextlib.suppress(asyncio.CancelledError):
        while broker.process.poll() is None:
            await asyncio.sleep(POLL_SECONDS)
        raise DemoFailed("the broker was stopped; run make demo again")
