"""A program that the broker starts, and that serves requests over its standard input and output.

python examples/broker_program.py

In a configuration, the broker starts it like this:

    [[program]]
    name = "mean"
    command = ["python", "examples/broker_program.py", "--serve"]
"""

import asyncio
import contextlib
import sys

import penstock
from penstock.client import ConnectionLost, Request
from penstock.server.server import Server
from penstock.transport.stdio import Program


async def mean(request: Request) -> object:
    """Answer a request."""
    return {"mean": sum(request.payload) / len(request.payload)}


async def serve() -> None:
    """Run inside the broker: `stdio://` is the broker that started this program."""
    async with penstock.connect("stdio://", protocol="fleximq") as client:
        client.serve("/mean", mean)
        print(f"client {client.identity} is ready")  # a line in the broker's log
        await client.publish("programs/mean", str(client.identity).encode())
        with contextlib.suppress(ConnectionLost):  # the broker stops
            async for message in client.subscribe("programs/log"):
                print(message.value.decode())


async def main() -> None:
    """Start a broker and the program, and send the program a request."""
    server = Server()
    await server.start()
    host, port = await server.listen_tcp()
    async with (
        penstock.connect(f"tcp://{host}:{port}", protocol="fleximq") as client,
        client.subscribe("programs/mean") as programs,
    ):
        command = (sys.executable, __file__, "--serve")
        await server.run_programs([Program("mean", command)])
        number = int((await anext(programs)).value)
        reply = await client.request(number, "/mean", [18.5, 21.5], timeout=5)
        print(f"program {reply.sender} answered {reply.payload}")
    await server.stop()


asyncio.run(serve() if "--serve" in sys.argv else main())
