"""Peers that vanish, or do not read: keep-alive, linger and abort end their connections."""

import asyncio
import base64
import os
import socket
import struct
from typing import Any

import pytest
import websockets

from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, Owner, until
from tests.unit.transport.test_half_close import Streams, checked
from tests.unit.transport.test_websocket import endpoint

LARGE = bytes(32 << 20)


def test_the_system_looks_for_peers_that_vanish(run: Run) -> None:
    async def check(owner: Streams, _reader: Any, _writer: Any) -> None:
        assert_probed(owner.links[0]._transport.get_extra_info("socket"))

    checked(run, Echo, check)


def test_the_system_looks_for_peers_of_a_websocket_that_vanish(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url, websockets.connect(f"{url}/ws"):
            await until(lambda: owner.links)
            assert_probed(owner.links[0]._connection.transport.get_extra_info("socket"))

    run(check())


def assert_probed(made: socket.socket) -> None:
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3


def test_a_peer_whose_socket_is_closed_has_left(run: Run) -> None:
    """Once broken: TLS reports the end later, and a check in between raised ValueError."""

    class ClosedTransport:
        def get_extra_info(self, _name: str) -> socket.socket:
            made = socket.socket()
            made.close()
            return made

    async def check(owner: Streams, _reader: Any, _writer: Any) -> None:
        link = owner.links[0]
        assert not link.has_left
        made, link._transport = link._transport, ClosedTransport()
        assert link.has_left
        link._transport = made

    checked(run, Echo, check)


def test_bytes_that_wait_here_or_in_the_system_are_not_acknowledged(run: Run) -> None:
    async def check(owner: Streams, reader: Any, _writer: Any) -> None:
        reader._transport.pause_reading()
        link = owner.links[0]
        link.write(LARGE)
        await until(link.acknowledged)
        assert link.buffered > 0
        assert link.acknowledged() + link.buffered < link.written == len(LARGE)
        reader._transport.resume_reading()
        await reader.readexactly(len(LARGE))
        await until(lambda: link.acknowledged() == len(LARGE))

    checked(run, Echo, check)


@pytest.mark.parametrize("end", ["reset", "closed"])
def test_what_the_peer_had_acknowledged_is_known_after_the_end(run: Run, end: str) -> None:
    """Once broken: the number was that of the last call before the end."""

    async def check(owner: Streams, reader: Any, writer: Any) -> None:
        link, handler = owner.links[0], owner.handlers[0]
        link.write(b"acknowledged")
        await reader.readexactly(12)
        writer.write(b"!")  # with the acknowledgment of what came before
        await reader.readexactly(1)
        if end == "reset":
            no_linger = struct.pack("ii", 1, 0)
            made = writer.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        writer.close()
        await until(lambda: handler.lost_for)
        assert 12 <= link.acknowledged() <= 13

    checked(run, Echo, check)


def test_bytes_that_a_peer_never_got_are_not_acknowledged_by_its_end(run: Run) -> None:
    """A reset empties the send queue of the system."""

    async def check(owner: Streams, reader: Any, writer: Any) -> None:
        reader._transport.pause_reading()
        link, handler = owner.links[0], owner.handlers[0]
        link.write(LARGE)
        await until(link.acknowledged)
        writer.transport.abort()
        await until(lambda: handler.lost_for)
        assert 0 < link.acknowledged() < len(LARGE)

    checked(run, Echo, check)


def test_a_closing_peer_that_reads_nothing_is_cut_off(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.transport.stream.LINGER_SECONDS_MAX", 0.1)

    async def check(owner: Streams, reader: Any, _writer: Any) -> None:
        reader._transport.pause_reading()
        owner.links[0].write(LARGE)
        owner.links[0].close()
        await until(lambda: not owner.links)
        assert len(owner.handlers[0].lost_for) == 1

    checked(run, Echo, check)


def test_a_closing_peer_that_reads_slowly_gets_everything(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.transport.stream.LINGER_SECONDS_MAX", 0.2)

    async def check(owner: Streams, reader: Any, _writer: Any) -> None:
        owner.links[0].write(LARGE)
        owner.links[0].close()
        size = 0
        while data := await reader.read(1 << 20):
            size += len(data)
            await asyncio.sleep(0.02)
        assert size == len(LARGE)

    checked(run, Echo, check)


def test_of_a_closing_peer_nothing_more_is_read(run: Run) -> None:
    async def check(owner: Streams, reader: Any, _writer: Any) -> None:
        reader._transport.pause_reading()
        link = owner.links[0]
        assert link._transport.is_reading()
        link.write(LARGE)
        link.close()
        assert not link._transport.is_reading()
        link.abort()

    checked(run, Echo, check)


def test_an_abort_drops_what_is_not_sent(run: Run) -> None:
    async def check(owner: Streams, reader: Any, _writer: Any) -> None:
        reader._transport.pause_reading()
        owner.links[0].write(LARGE)
        owner.links[0].abort()
        await until(lambda: not owner.links, seconds_max=1.0)

    checked(run, Echo, check)


def test_a_websocket_that_answers_no_ping_is_closed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.transport.websocket.WEBSOCKET_PING_SECONDS", 0.1)

    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url:
            host, _, port = url.removeprefix("ws://").partition("/")[0].partition(":")
            _reader, writer = await asyncio.open_connection(host, int(port))
            key = base64.b64encode(os.urandom(16)).decode()
            writer.write(
                "GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                "Sec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            await until(lambda: owner.links)
            await until(lambda: not owner.links)
            writer.close()

    run(check())
