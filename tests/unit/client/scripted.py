"""A broker that does what a test says: a TCP server in the test's own event loop."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.support import herald_bytes as herald

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ACK = herald.frame(0x03, struct.pack("<BQ", 0, 1))


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test with a deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


def message(channel: int, value: bytes) -> bytes:
    return herald.frame(0x13, struct.pack("<BQ", channel, 0) + value)


class Scripted:
    """`async with Scripted(script) as url:`; a script is run for each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**20)
        host, port = self._server.sockets[0].getsockname()
        return f"tcp://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()


async def frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next herald frame that the client sent."""
    magic, opcode, length = struct.unpack("<HBI", await reader.readexactly(7))
    assert magic == 0xCAFE
    return opcode, await reader.readexactly(length)


async def obliging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Acknowledge handshakes, answer pings, take the rest, until a goodbye."""
    while True:
        opcode, _ = await frame(reader)
        if opcode in (0x01, 0x02):
            writer.write(ACK)
        elif opcode == 0x20:
            writer.write(herald.PONG)
        elif opcode == 0x04:
            return
