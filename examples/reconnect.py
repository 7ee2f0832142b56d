"""A subscription that continues after a restart of the broker.

python examples/reconnect.py
"""

import asyncio

import penstock
from penstock.client import Backoff, ClientEvent, ConnectionLost, State, StateChanged
from penstock.server.server import Server


async def started(port: int) -> tuple[Server, int]:
    """Start a broker; port 0 lets the system choose."""
    server = Server()
    await server.start()
    _, port = await server.listen_tcp(port=port)
    return server, port


async def main() -> None:
    """Publish, restart the broker, publish again."""
    changes: asyncio.Queue[State] = asyncio.Queue()

    def note(event: ClientEvent) -> None:
        if isinstance(event, StateChanged):
            print(f"{event.state.name.lower():<12} {event.reason}")
            changes.put_nowait(event.state)

    server, port = await started(0)
    backoff = Backoff(seconds_min=0.05, seconds_max=1)
    client = penstock.connect(
        f"tcp://127.0.0.1:{port}", protocol="rheos2", backoff=backoff, on_event=note
    )
    async with client, client.subscribe("channel/7") as messages:
        await client.publish("channel/7", b"before")
        print((await messages.get(timeout=5)).value)
        await server.stop()
        while await changes.get() is not State.RECONNECTING:
            pass
        server, _ = await started(port)
        try:
            await client.publish("channel/7", b"after")  # waits for the connection
        except ConnectionLost as lost:
            print(f"the caller must decide whether to publish again: {lost}")
        print((await messages.get(timeout=5)).value)
    await server.stop()


asyncio.run(main())
