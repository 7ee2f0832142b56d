"""fleximq clients that send requests to each other and to the broker.

python examples/request_reply.py [tcp://HOST:PORT]
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import penstock
from penstock.client import Refused, Request, RequestFailed
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


async def mean(request: Request) -> object:
    """Answer with a value, or with an error status."""
    if not request.payload:
        raise RequestFailed(400, "no numbers")
    return {"mean": sum(request.payload) / len(request.payload)}


async def main() -> None:
    """Serve requests in one client, send them from another."""
    async with (
        broker() as url,
        penstock.connect(url, protocol="fleximq") as server,
        penstock.connect(url, protocol="fleximq") as client,
    ):
        server.serve("/mean", mean)
        reply = await client.request(server.identity or 0, "/mean", [18.5, 21.5], timeout=5)
        print(f"client {reply.sender} answered {reply.payload}")
        try:
            await client.request(server.identity or 0, "/mean", [])
        except Refused as refused:
            print(f"status {refused.answer}: {refused.text}")
        stats = await client.request(1, "/stats")
        print(f"the broker has {stats.payload['clients']} clients")


asyncio.run(main())
