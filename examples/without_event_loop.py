"""The synchronous client: no event loop, no await.

python examples/without_event_loop.py [tcp://HOST:PORT]
"""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import penstock
from penstock.server.server import Server


@contextmanager
def broker() -> Iterator[str]:
    """Yield the address from the command line, or that of a broker started for this example."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Server()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    host, port = asyncio.run_coroutine_threadsafe(server.listen_tcp(), loop).result()
    try:
        yield f"tcp://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


with (
    broker() as url,
    penstock.connect_sync(url, protocol="herald") as publisher,
    penstock.connect_sync(url, protocol="fleximq") as subscriber,
    subscriber.subscribe("channel/7", timeout=5) as messages,
):
    publisher.publish_many(7, [b"%d" % number for number in range(1000)])
    total = sum(int(next(messages).value) for _ in range(1000))
    print(f"1000 messages received, their sum is {total}")
