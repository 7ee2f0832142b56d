"""A peer that sends nothing more may still read: what is owed to it is sent, then it is closed."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from penstock.transport.stream import ReceiveBuffer, StreamConnection
from penstock.transport.tls import server_context
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, Owner, until
from tests.unit.transport.test_tls import CERTIFICATE, KEY

Check = Callable[[Any, Any, Any], Awaitable[None]]


class Owing(Echo):
    """Takes note that the peer has ended, and does nothing about it."""

    def __init__(self, link: Any, step: int = 1) -> None:
        super().__init__(link, step)
        self.ended_count = 0

    def ended(self) -> None:
        self.ended_count += 1


class Streams(Owner):
    """See transport.stream.ConnectionOwner."""

    def __init__(self, new_handler: Callable[[Any], Any]) -> None:
        super().__init__(new_handler)
        self.buffer = ReceiveBuffer()
        self.address = ("", 0)

    @contextlib.asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: StreamConnection(self), "127.0.0.1", 0, ssl=tls)
        self.address = server.sockets[0].getsockname()
        try:
            yield self.address
        finally:
            server.close()
            for link in list(self.links):
                link.abort()
            await until(lambda: not self.links)


@contextlib.asynccontextmanager
async def connected(
    address: tuple[str, int],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def checked(run: Run, new_handler: Callable[[Any], Any], check: Check) -> None:
    """Run a check with one peer that is connected."""

    async def work() -> None:
        owner = Streams(new_handler)
        async with owner.listening() as address, connected(address) as (reader, writer):
            await until(lambda: owner.links)
            await check(owner, reader, writer)

    run(work())


def test_what_is_written_after_the_peer_has_ended_arrives(run: Run) -> None:
    async def check(owner: Any, reader: Any, writer: Any) -> None:
        writer.write(b"all of it")
        writer.write_eof()
        await until(lambda: owner.handlers[0].ended_count)
        (link,) = owner.links
        link.write(b"owed")
        link.close()
        assert await reader.read() == b"all of itowed"
        await until(lambda: not owner.links)
        assert owner.handlers[0].lost_for == ["closed"]

    checked(run, Owing, check)


def test_an_unfinished_frame_of_a_peer_that_has_ended_is_dropped(run: Run) -> None:
    async def check(owner: Any, reader: Any, writer: Any) -> None:
        writer.write(b"unfinished")
        writer.write_eof()
        await until(lambda: owner.handlers[0].ended_count)
        (link,) = owner.links
        assert link.waiting() == b""
        link.close()
        assert await reader.read() == b"unfinish"

    checked(run, lambda link: Owing(link, step=4), check)


def test_a_handler_learns_of_the_end_once_whatever_is_paused_and_resumed(run: Run) -> None:
    async def check(owner: Any, reader: Any, writer: Any) -> None:
        writer.write_eof()
        await until(lambda: owner.handlers[0].ended_count)
        (link,) = owner.links
        for action in (link.pause, link.pause, link.resume, link.resume):
            action()
        for piece in (b"1", b"2"):
            link.write(piece)
            assert await reader.readexactly(1) == piece
        assert owner.handlers[0].ended_count == 1
        link.close()
        assert await reader.read() == b""

    checked(run, Owing, check)


def test_the_end_waits_behind_what_a_paused_handler_has_not_taken(run: Run) -> None:
    async def check(owner: Any, reader: Any, writer: Any) -> None:
        writer.write(b"once")
        assert await reader.readexactly(4) == b"once"
        (link,) = owner.links
        link.pause()
        writer.write(b"more")
        writer.write_eof()
        for _ in range(20):  # the loop has every chance to read
            await asyncio.sleep(0)
        assert owner.handlers[0].ended_count == 0
        link.resume()
        assert await reader.readexactly(4) == b"more"
        await until(lambda: owner.handlers[0].ended_count)

    checked(run, Owing, check)


def test_a_handler_that_breaks_at_the_end_breaks_one_connection(run: Run) -> None:
    class Breaking(Echo):
        def ended(self) -> None:
            raise RuntimeError("no end")

    async def check(owner: Any, reader: Any, writer: Any) -> None:
        async with connected(owner.address) as (_, other):
            await until(lambda: len(owner.links) == 2)
            other.write_eof()
            await until(lambda: len(owner.links) == 1)
            assert [str(error) for error in owner.failures] == ["no end"]
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"

    checked(run, Breaking, check)


def test_tls_has_no_half_close(run: Run) -> None:
    def peer(address: tuple[str, int]) -> bytes:
        context = ssl.create_default_context(cafile=str(CERTIFICATE))
        with (
            socket.create_connection(address, timeout=5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"abcd")
            answer = secure.recv(4)
            secure.unwrap().close()  # says goodbye and waits for the answer to it
            return answer

    async def check() -> None:
        owner = Streams(Owing)
        async with owner.listening(server_context(CERTIFICATE, KEY)) as address:
            assert await asyncio.to_thread(peer, address) == b"abcd"
            await until(lambda: owner.handlers[0].lost_for)
            assert owner.handlers[0].ended_count == 0

    run(check())
