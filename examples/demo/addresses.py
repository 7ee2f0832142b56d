"""The end: where everything is, and what to try."""

import asyncio
import contextlib
import sys
from pathlib import Path

from examples.demo.broker import Broker
from examples.demo.errors import DemoFailed
from examples.demo.screen import chapter, seen
from examples.demo.topics import ORDERS

__all__ = ["stay", "tell"]

USUAL_URL = "tcp://127.0.0.1:7000"
QUERY = "select beer, litres, sender from orders"
LOOK_SECONDS = 0.5


def tell(broker: Broker, folder: Path, *, service_id: int, with_tables: bool) -> None:
    """Show the addresses and folders, and commands to try."""
    chapter("The broker runs", "So do the guard of the orders and the service.")
    seen(f"clients    {broker.url}")
    seen(f"HTTP       {broker.http}/metrics  {broker.http}/api/topics")
    seen(f"Flight     {broker.flight}")
    seen(f"data       {broker.data}")
    commands = [
        "sub 'brewery/#' --replay earliest --count 5",
        f'pub {ORDERS} \'{{"beer": "stout", "litres": 900}}\'',
        f'req /price \'{{"beer": "pils", "litres": 2}}\' --as json --to {service_id}',
    ]
    if broker.url != USUAL_URL:
        commands = [f"{command} --url {broker.url}" for command in commands]
    if with_tables:
        seen(f"warehouse  {folder / 'warehouse'}")
        config = folder / "pipeline.toml"
        commands.append(f"sql --config {config} '{QUERY}'")
    chapter("Try", "in another terminal:")
    for command in commands:
        seen(f"{_program()} {command}")


def _program() -> str:
    """Return how the command line is called from here."""
    program = Path(sys.executable).with_name("penstock")
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


async def stay(broker: Broker) -> None:
    """Wait for Ctrl-C; raise DemoFailed if the broker ends before."""
    seen("")
    seen("Ctrl-C ends all of it, and removes what it kept.")
    with contextlib.suppress(asyncio.CancelledError):
        while broker.process.poll() is None:
            await asyncio.sleep(LOOK_SECONDS)
        raise DemoFailed("somebody ended the broker; make demo starts another")
