"""Publish one message; subscribers of all five protocols receive it.

python examples/publish_subscribe.py [tcp://HOST:PORT]
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import penstock
from penstock.protocols import PROTOCOLS, Protocol
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


async def receive(url: str, protocol: Protocol, ready: asyncio.Barrier) -> None:
    """Subscribe with one protocol and print the first message."""
    async with (
        penstock.connect(url, protocol=protocol) as client,
        client.subscribe("channel/7") as messages,
    ):
        await ready.wait()
        async for message in messages:
            print(f"{protocol.label:<8} received {message.value!r} from {message.topic}")
            break


async def main() -> None:
    """Start five subscribers, then publish."""
    async with broker() as url, asyncio.TaskGroup() as tasks:
        ready = asyncio.Barrier(len(PROTOCOLS) + 1)
        for protocol in PROTOCOLS:
            tasks.create_task(receive(url, protocol, ready))
        await ready.wait()
        async with penstock.connect(url, protocol="rheos2") as publisher:
            message_id = await publisher.publish("channel/7", b"21.5")
            print(f"published as {message_id}")


asyncio.run(main())
