"""A byte stream in WebSocket messages, and plain HTTP beside it; `websockets` is the peer."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from penstock.limits import HTTP_REQUEST_LINE_BYTES_MAX
from penstock.memory import MemoryBudget, Purpose
from penstock.transport.addresses import Address
from penstock.transport.origin_policy import OriginPolicy
from penstock.transport.tls import server_context
from penstock.transport.websocket import WebSocketEndpoint
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import Echo, Owner, one_broken, until

ORIGINS = OriginPolicy(Address("ws", "127.0.0.1"))
TLS = Path(__file__).parents[2] / "support" / "tls"


@asynccontextmanager
async def endpoint(
    owner: Owner, *, tls: ssl.SSLContext | None = None, origins: tuple[str, ...] = ()
) -> AsyncIterator[str]:
    made = WebSocketEndpoint(
        owner, path="/ws", origins=OriginPolicy(Address("ws", "127.0.0.1", origins=origins))
    )
    _, port = await made.listen("127.0.0.1", 0, tls=tls)
    try:
        yield f"{'wss' if tls else 'ws'}://127.0.0.1:{port}"
    finally:
        await made.close(seconds_max=1)
        assert not owner.links
        assert not made


async def receive(peer: ClientConnection, size: int) -> bytes:
    """Exactly `size` bytes, in however many messages."""
    data = b""
    async with asyncio.timeout(5):
        while len(data) < size:
            message = await peer.recv()
            assert isinstance(message, bytes)
            data += message
    assert len(data) == size
    return data


async def shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def get(url: str, path: str, *headers: str, method: str = "GET") -> bytes:
    """The whole answer to a plain HTTP request."""
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_the_stream_does_not_depend_on_the_messages(run: Run) -> None:
    async def check() -> None:
        owner = Owner(lambda link: Echo(link, 8))
        stream = bytes(range(32))
        async with endpoint(owner) as url, connect(url + "/ws", compression=None) as peer:
            sent = b""
            for cut in range(len(stream) + 1):
                await peer.send(stream[:cut])
                await peer.send(stream[cut:])
                sent += stream
            for byte in stream:
                await peer.send(bytes([byte]))
            sent += stream
            await peer.send(stream * 100)
            sent += stream * 100
            await peer.send([stream[:5], b"", stream[5:9], stream[9:]])  # fragments of one message
            sent += stream
            assert await receive(peer, len(sent)) == sent
            assert owner.handlers[0].taken == sent

    run(check())


def test_a_large_frame_crosses_in_both_directions(run: Run) -> None:
    async def check() -> None:
        size = 3_000_000
        owner = Owner(lambda link: Echo(link, size))
        stream = bytes(i % 251 for i in range(size))
        async with endpoint(owner) as url, connect(url + "/ws", compression=None) as peer:
            for start in range(0, size, 100_000):
                await peer.send(stream[start : start + 100_000])
            # The peer's own limit is 1 MiB for a message: the broker stays below it.
            assert await receive(peer, size) == stream

    run(check())


def test_a_text_message_closes_with_1003(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url, connect(url + "/ws") as peer:
            await peer.send("text")
            with pytest.raises(ConnectionClosed) as caught:
                await asyncio.wait_for(peer.recv(), 5)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1003
            assert owner.refusals == ["text message"]
            await until(lambda: not owner.links)
            assert len(owner.handlers[0].lost_for) == 1

    run(check())


def test_what_is_not_for_the_websocket_is_handed_on_with_all_that_came(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        handed_on = b"not for the WebSocket: "
        async with endpoint(owner) as url:
            for path, method in (("/api?x=1", "GET"), ("/ws", "POST"), ("/wsx", "GET")):
                answer = await get(url, path, "X: y", method=method)
                line = f"{method} {path} HTTP/1.1\r\n".encode()
                assert answer.startswith(handed_on + line)
                assert answer.endswith(b"\r\nX: y\r\n\r\n")
            answer = await get(url, "/ws")
            assert answer.startswith(b"HTTP/1.1 426 ")  # no upgrade asked for
            assert b"\r\nServer:" not in answer
            async with connect(url + "/ws?token=1"):
                pass
            assert len(owner.handlers) == 1

    run(check())


def test_without_a_path_there_is_no_websocket(run: Run) -> None:
    async def check() -> None:
        made = WebSocketEndpoint(Owner(), path="", origins=ORIGINS)
        _, port = await made.listen("127.0.0.1", 0)
        answer = await get(f"ws://127.0.0.1:{port}", "/")
        assert answer.startswith(b"not for the WebSocket: GET / ")
        await made.close(seconds_max=1)

    run(check())


def test_a_first_line_that_does_not_end_is_handed_on_at_the_limit(run: Run) -> None:
    async def check() -> None:
        async with endpoint(Owner()) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /" + bytes(HTTP_REQUEST_LINE_BYTES_MAX))
            async with asyncio.timeout(5):
                assert (await reader.read()).startswith(b"not for the WebSocket: GET /")
            await shut(writer)

    run(check())


def test_who_does_not_say_what_it_wants_is_cut_off_in_time(run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.transport.web_connection.HANDSHAKE_SECONDS_MAX", 0.1)

    async def check() -> None:
        async with endpoint(Owner()) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /")
            async with asyncio.timeout(5):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            await shut(writer)

    run(check())


def test_a_page_from_elsewhere_is_not_welcome_unless_listed(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner, origins=("https://app.example",)) as url:
            port = url.rpartition(":")[2]
            for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
                with pytest.raises(InvalidStatus) as caught:
                    await connect(url + "/ws", origin=origin)  # type: ignore[arg-type]
                assert caught.value.response.status_code == 403
            for origin in ("https://app.example", f"http://127.0.0.1:{port}"):
                async with connect(url + "/ws", origin=origin):  # type: ignore[arg-type]
                    pass
            assert owner.refusals == ["origin not allowed"] * 3
        anywhere = "https://evil.example"
        async with (
            endpoint(owner, origins=("*",)) as url,
            connect(url + "/ws", origin=anywhere),  # type: ignore[arg-type]
        ):
            pass

    run(check())


def test_while_paused_nothing_is_taken(run: Run) -> None:
    async def check() -> None:
        owner = Owner(lambda link: Echo(link, 2))
        async with endpoint(owner) as url, connect(url + "/ws") as peer:
            await peer.send(b"abc")
            assert await receive(peer, 2) == b"ab"
            link = owner.links[0]
            link.pause()
            link.pause()
            await peer.send(b"def")
            await (await peer.ping())  # it has been received
            link.resume()
            assert owner.handlers[0].taken == b"ab"
            link.resume()
            assert await receive(peer, 4) == b"cdef"
            await peer.send(b"gh")
            assert await receive(peer, 2) == b"gh", "it goes on after a pause"

    run(check())


def test_while_paused_no_more_is_read_than_a_little_ahead(run: Run) -> None:
    async def flood(peer: ClientConnection) -> None:
        for _ in range(64):  # more than the buffers of the system
            await peer.send(bytes(1 << 20))

    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url, connect(url + "/ws", compression=None) as peer:
            await peer.send(b"a")
            assert await receive(peer, 1) == b"a"
            owner.links[0].pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(flood(peer), 1)
            owner.links[0].abort()
            peer.transport.abort()

    run(check())


def test_a_connection_that_is_lost_while_paused_is_let_go(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url:
            peer = await connect(url + "/ws")
            await peer.send(b"a")
            assert await receive(peer, 1) == b"a"
            owner.links[0].pause()
            await peer.send(b"b")
            await (await peer.ping())
            peer.transport.abort()
            await until(lambda: not owner.links)
            assert len(owner.handlers[0].lost_for) == 1

    run(check())


@pytest.mark.parametrize("cut", ["abort", "close"])
def test_a_connection_that_the_peer_ends_is_let_go(run: Run, cut: str) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url:
            peer = await connect(url + "/ws")
            await peer.send(b"a")
            assert await receive(peer, 1) == b"a"
            link = owner.links[0]
            if cut == "abort":
                peer.transport.abort()
            else:
                await peer.close()
            await until(lambda: not owner.links)
            assert len(owner.handlers[0].lost_for) == 1
            link.write(b"into the void")
            link.close()
            link.abort()

    run(check())


def test_close_comes_behind_all_that_was_written(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url, connect(url + "/ws") as peer:
            await until(lambda: owner.links)
            link = owner.links[0]
            data = bytes(1_000_000)
            link.write(data)
            link.write(b"last")
            assert link.buffered == len(data) + 4
            link.close()
            link.write(b"too late")
            assert await receive(peer, len(data) + 4) == data + b"last"
            with pytest.raises(ConnectionClosed) as caught:
                await asyncio.wait_for(peer.recv(), 5)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1000
            await until(lambda: not owner.links)

    run(check())


def test_a_peer_that_does_not_read_congests_and_drains(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url, connect(url + "/ws", max_queue=1) as peer:
            await until(lambda: owner.links)
            link, handler = owner.links[0], owner.handlers[0]
            written = 0
            while not link.congested:
                link.write(bytes(300_000))
                written += 300_000
                await asyncio.sleep(0)
            assert link.buffered > owner.congested_bytes // 4
            assert handler.drained_count == 0
            assert await receive(peer, written) == bytes(written)
            await until(lambda: handler.drained_count == 1)
            assert not link.congested

    run(check())


@pytest.mark.parametrize("congested_bytes", [16_384, 65_536])
def test_a_link_with_a_small_limit_drains(run: Run, congested_bytes: int) -> None:
    async def check() -> None:
        owner = Owner()
        owner.congested_bytes = congested_bytes
        async with endpoint(owner) as url, connect(url + "/ws", max_queue=1) as peer:
            await until(lambda: owner.links)
            (link,) = owner.links
            transport = link._connection.transport
            sender = transport.get_extra_info("socket")
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            transport.pause_reading()
            peer.transport.pause_reading()
            written = 0
            while transport.get_write_buffer_size() <= congested_bytes // 4:
                link.write(bytes(2000))
                written += 2000
                await asyncio.sleep(0.001)
            while not link.congested:
                link.write(bytes(2000))
                written += 2000
            peer.transport.resume_reading()
            assert await receive(peer, written) == bytes(written)
            await until(lambda: not link.congested)

    run(check())


def test_a_peer_that_lets_answers_pile_up_is_cut_off(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url:
            peer = await connect(url + "/ws", max_queue=1)
            await until(lambda: owner.links)
            link = owner.links[0]
            for _ in range(owner.out_bytes_max // 1_000_000 + 2):
                link.write(bytes(1_000_000))
            assert owner.refusals == ["out-buffer full"]
            await until(lambda: not owner.links)
            peer.transport.abort()

    run(check())


def test_a_handler_that_breaks_takes_one_connection_with_it(run: Run) -> None:
    async def check() -> None:
        owner = Owner(one_broken(Echo))
        async with (
            endpoint(owner) as url,
            connect(url + "/ws") as bad,
            connect(url + "/ws") as good,
        ):
            await bad.send(b"x")
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(bad.recv(), 5)
            await good.send(b"x")
            assert await receive(good, 1) == b"x"
            assert len(owner.failures) == 1
            assert len(owner.links) == 1

    run(check())


def test_a_stop_closes_who_is_in_and_who_is_at_the_door(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        made = WebSocketEndpoint(owner, path="/ws", origins=ORIGINS)
        _, port = await made.listen("127.0.0.1", 0)
        peer = await connect(f"ws://127.0.0.1:{port}/ws")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /ws HTTP/1.1\r\n")
        await until(lambda: len(owner.links) == 1)
        made.stop_accepting()
        await peer.send(b"still here")
        assert await receive(peer, 10) == b"still here"
        with pytest.raises(OSError, match=r"Connect call failed|refused"):
            await asyncio.open_connection("127.0.0.1", port)
        await made.close(seconds_max=0.2)
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(peer.recv(), 5)
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        await shut(writer)
        assert not owner.links

    run(check())


def test_a_message_beyond_the_limit_closes_with_1009(run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.transport.websocket.WEBSOCKET_MESSAGE_BYTES_MAX", 1000)

    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url, connect(url + "/ws", compression=None) as peer:
            await peer.send(bytes(1000))
            assert await receive(peer, 1000) == bytes(1000)
            await peer.send(bytes(1001))
            with pytest.raises(ConnectionClosed) as caught:
                await asyncio.wait_for(peer.recv(), 5)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1009

    run(check())


def test_bytes_that_are_no_websocket_end_one_connection(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        async with endpoint(owner) as url:
            peer = await connect(url + "/ws")
            await until(lambda: owner.links)
            # A frame that a client must mask, and did not.
            peer.transport.write(Frame(Opcode.BINARY, b"x").serialize(mask=False))
            with pytest.raises(ConnectionClosed) as caught:
                await asyncio.wait_for(peer.recv(), 5)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1002
            await until(lambda: not owner.links)
            port = int(url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\xfe\xca\x20\0\0\0\0\r\n\r\n")
            await asyncio.wait_for(reader.read(), 5)
            await shut(writer)

    run(check())


def test_it_speaks_tls(run: Run) -> None:
    async def check() -> None:
        owner = Owner()
        trusting = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
        context = server_context(TLS / "localhost.pem", TLS / "localhost.key")
        async with (
            endpoint(owner, tls=context) as url,
            connect(url + "/ws", ssl=trusting) as peer,
        ):
            await peer.send(b"secret")
            assert await receive(peer, 6) == b"secret"

    run(check())


class Budgeted(Owner):
    """Connections draw from a memory budget."""

    def __init__(self, new_handler: Any) -> None:
        super().__init__(new_handler)
        self.memory = MemoryBudget(1 << 30)

    def opened(self, link: Any, *arguments: Any) -> Any:
        link.account = self.memory.open("127.0.0.1")
        link.account.holder = link
        return super().opened(link, *arguments)


class Starving(Echo):
    """Takes eight bytes at a time, and says when it gets no memory."""

    def __init__(self, link: Any) -> None:
        super().__init__(link, 8)
        self.starvations = 0

    def starved(self) -> None:
        self.starvations += 1
        self.link.write(b"no memory")


def input_bytes(owner: Owner) -> int:
    """Return what the first connection holds for input, after a measurement."""
    link = owner.links[0]
    link.measure()
    size: int = link.account.size(Purpose.INPUT)
    return size


def test_a_connection_that_ends_returns_its_memory(run: Run) -> None:
    async def check() -> None:
        owner = Budgeted(Starving)
        async with endpoint(owner) as url:
            async with connect(url + "/ws") as peer:
                await peer.send(bytes(11))
                assert await receive(peer, 8) == bytes(8)
                await until(lambda: input_bytes(owner) == 3)
            await until(lambda: not owner.links)
            assert owner.memory.left() == {}

    run(check())


def test_a_client_whose_input_gets_no_memory_is_told_before_it_is_cut(
    run: Run, monkeypatch: Any
) -> None:
    monkeypatch.setattr("penstock.transport.websocket.WEBSOCKET_CLOSE_SECONDS_MAX", 0.2)

    async def check() -> None:
        owner = Budgeted(Starving)
        async with endpoint(owner) as url, connect(url + "/ws") as peer:
            await peer.send(bytes(11))
            assert await receive(peer, 8) == bytes(8)
            await until(lambda: input_bytes(owner) == 3)
            owner.links[0].evict()
            assert await receive(peer, 9) == b"no memory"
            await until(lambda: not owner.links)
            assert owner.handlers[0].starvations == 1

    run(check())


def test_a_client_that_does_not_read_is_cut_without_a_word(run: Run) -> None:
    async def check() -> None:
        owner = Budgeted(Starving)
        async with endpoint(owner) as url, connect(url + "/ws") as peer:
            await peer.send(bytes(8))
            assert await receive(peer, 8) == bytes(8)
            await until(lambda: input_bytes(owner) == 0)
            owner.links[0].evict()
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(peer.recv(), 5)
            await until(lambda: not owner.links)
            assert owner.handlers[0].starvations == 0

    run(check())


def test_a_connection_without_a_whole_first_line_can_be_aborted(run: Run) -> None:
    class Entered(Owner):
        def entered(self, connection: Any) -> bool:
            used = connection._unidentified.get_extra_info("socket").fileno()
            assert connection.descriptor == used
            self.links.append(connection)
            return True

        def left(self, connection: Any) -> None:
            self.links.remove(connection)

    async def check() -> None:
        owner = Entered()
        async with endpoint(owner) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /")
            await until(lambda: owner.links)
            owner.links[0].abort()
            async with asyncio.timeout(5):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            await shut(writer)

    run(check())
