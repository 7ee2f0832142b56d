"""A link that was congested tells its handler once the peer has read enough."""

import asyncio
import socket

import pytest

from penstock.transport.tls import server_context
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, until
from tests.unit.transport.test_gathered_writes import trusting
from tests.unit.transport.test_half_close import Streams
from tests.unit.transport.test_tls import CERTIFICATE, KEY

KIB = 1 << 10


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize(
    ("congested_bytes", "piece", "further"),
    [
        (1, 1, 100),
        (16 * KIB, 1000, 0),
        (64 * KIB, 1000, 0),
        (64 * KIB, 1000, 45),
        (128 * KIB, 30_000, 2),
        (1024 * KIB, 1000, 0),
        (1024 * KIB, 100_000, 3),
    ],
)
def test_a_link_is_drained_whatever_its_limit(
    run: Run, *, congested_bytes: int, piece: int, further: int, tls: bool
) -> None:
    async def check() -> None:
        streams = Streams(Echo)
        streams.congested_bytes = congested_bytes
        context = server_context(CERTIFICATE, KEY) if tls else None
        async with streams.listening(context) as address:
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            peer.setblocking(False)  # noqa: FBT003
            await asyncio.get_running_loop().sock_connect(peer, address)
            reader, writer = await asyncio.open_connection(
                sock=peer,
                ssl=trusting() if tls else None,
                server_hostname="localhost" if tls else None,
                limit=KIB,
            )
            try:
                await until(lambda: streams.links)
                (link,), (handler,) = streams.links, streams.handlers
                accepted = link._transport.get_extra_info("socket")
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
                pieces = 0
                while not link.congested:
                    link.write(bytes(piece))
                    pieces += 1
                    if not pieces % 500:
                        await asyncio.sleep(0)
                for _ in range(further):
                    link.write(bytes(piece))
                await reader.readexactly((pieces + further) * piece)
                await until(lambda: not link.congested)
                assert handler.drained_count
            finally:
                writer.transport.abort()

    run(check())
