"""A LamaMQ middleware that refuses messages of any protocol.

python examples/middleware.py [tcp://HOST:PORT]
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import penstock
from penstock.client import HookCall, Refused, TopicIs
from penstock.server.server import Server


@asynccontextmanager
async def broker() -> AsyncIterator[str]:
    """Yield the address from the command line, or that of a broker started for this example."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    server = Server()
    await server.start()
    host, port = await server.listen_tcp()
    try:
        yield f"tcp://{host}:{port}"
    finally:
        await server.stop()


async def plausible(call: HookCall) -> str | None:
    """Return None to accept a message, or a text to refuse it."""
    return None if -50 <= float(call.value) <= 60 else f"{call.value.decode()} is no temperature"


async def main() -> None:
    """Register a hook for one topic, then publish to it with two protocols."""
    async with (
        broker() as url,
        penstock.connect(url, protocol="lamamq", name="guard") as guard,
        penstock.connect(url, protocol="lamamq", name="sensor") as sensor,
        penstock.connect(url, protocol="rheos1") as other,
        await guard.middleware("plausible", plausible, conditions=[TopicIs("channel/7")]),
    ):
        await sensor.publish("channel/7", b"21.5", headers={"unit": "celsius"})
        print("21.5 was taken")
        for client in (sensor, other):
            try:
                await client.publish("channel/7", b"451")
            except Refused as refused:
                print(f"{client.protocol.label}: {refused.text}")


asyncio.run(main())
