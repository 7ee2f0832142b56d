"""Chapter 2: sensors that use herald, Rheos v1 and Rheos v2."""

import asyncio
import json

from examples.demo.topics import CELLAR, CHANNELS, KETTLE, TANK

import penstock

__all__ = ["READINGS", "measure"]

READINGS = 40
PAUSE_SECONDS = 0.02
FAULTY = 17
"""The reading for which kettle and cellar send an invalid value."""


async def measure(url: str) -> None:
    """Run the three sensors at the same time."""
    async with asyncio.TaskGroup() as together:
        together.create_task(kettle(url))
        together.create_task(cellar(url))
        together.create_task(tank(url))


async def kettle(url: str) -> None:
    """Send JSON to a channel of herald."""
    async with penstock.connect(url, protocol="herald", name="kettle") as client:
        for number in range(READINGS):
            value = json.dumps({"celsius": 60 + number / 4}).encode()
            await client.publish(CHANNELS[KETTLE], b"no signal" if number == FAULTY else value)
            await asyncio.sleep(PAUSE_SECONDS)
        await client.ping()  # when it is answered, the broker has all of them


async def cellar(url: str) -> None:
    """Send lines of CSV with Rheos v1."""
    async with penstock.connect(url, protocol="rheos1", name="cellar") as client:
        for number in range(READINGS):
            value = f"{11 + number % 3 / 2},{70 + number % 5}".encode()
            await client.publish(CELLAR, b"11.5,wet" if number == FAULTY else value)
            await asyncio.sleep(PAUSE_SECONDS)


async def tank(url: str) -> None:
    """Send JSON with Rheos v2."""
    async with penstock.connect(url, protocol="rheos2", name="tank") as client:
        for number in range(READINGS):
            await client.publish(TANK, json.dumps({"celsius": 4 + number % 8 / 8}).encode())
            await asyncio.sleep(PAUSE_SECONDS)
