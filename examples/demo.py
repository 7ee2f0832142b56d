"""Five clients, five protocols, one port: each publishes once and hears all five.

python examples/demo.py
"""

import contextlib

import uvloop

import penstock
from penstock.server.server import Server

PROTOCOLS = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
TOPIC = "channel/7"


async def main() -> None:
    """Start a broker, connect a client of each protocol, and let them talk."""
    server = Server()
    await server.start()
    host, port = await server.listen_tcp()
    address = f"tcp://{host}:{port}"
    print(f"a broker listens on {address}; five clients join it\n")
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            protocol: await stack.enter_async_context(penstock.connect(address, protocol=protocol))
            for protocol in PROTOCOLS
        }
        streams = {
            protocol: await stack.enter_async_context(await client.subscribe(TOPIC))
            for protocol, client in clients.items()
        }
        for protocol, client in clients.items():
            await client.publish(TOPIC, f"21.5 from {protocol}".encode())
        for protocol, stream in streams.items():
            heard = [(await anext(stream)).value.decode() for _ in PROTOCOLS]
            print(f"  {protocol:<8} heard  " + ",  ".join(heard))
    received = sum(server.broker.counters.messages_received.values())
    sent = sum(server.broker.counters.messages_sent.values())
    print(f"\n{received} messages in, {sent} deliveries out")
    await server.stop()


uvloop.run(main())
