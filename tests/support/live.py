"""A live broker for tests: a real server on a real port, in a thread of its own."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from penstock.gateway.options import GatewayOptions
from penstock.ports import LogWriter, Storage
from penstock.server.server import Server
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.options import LogOptions


class LiveBroker:
    """`with LiveBroker() as broker:` and connect to `broker.address`.

    With `data`, a folder, messages are kept there, as `log_options` say. A `writer` is a log of the
    test's own, which nobody can read. `open_storage` opens any other storage.
    """

    def __init__(
        self,
        *,
        options: GatewayOptions | None = None,
        data: Path | None = None,
        log_options: LogOptions | None = None,
        writer: LogWriter | None = None,
        open_storage: Callable[[], Storage] | None = None,
        **server: Any,
    ) -> None:
        self.options = options
        self._data = data
        self._log_options = log_options
        self._writer = writer
        self._open_storage = open_storage
        self._keywords = server
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.address = ("", 0)
        self.server: Server
        self._loop: asyncio.AbstractEventLoop
        self._done: asyncio.Event

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10 if self._open_storage is None else 60), (
            "the broker did not start"
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the broker did not stop"

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the broker's thread; return what it returns."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def run(self, make: Callable[[], Any]) -> Any:
        """Run a coroutine in the broker's loop; return what it returns."""
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)

    def until(self, condition: Callable[[], Any], *, seconds_max: float = 5.0) -> None:
        """Wait for a condition, asked in the broker's thread; it must come true in time."""
        deadline = time.monotonic() + seconds_max
        while not self.call(condition):
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.005)

    def _run(self) -> None:
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        storage: Storage | None = None
        if self._open_storage is not None:
            storage = self._open_storage()
        elif self._data is not None:
            storage = ArrowLog(self._data, self._log_options)
        self.server = Server(storage=storage, **self._keywords)
        if self._writer is not None:
            self.server.broker.log = self._writer
        await self.server.start()
        self.address = await self.server.listen_tcp(options=self.options)
        self._ready.set()
        await self._done.wait()
        await self.server.stop(seconds_max=1)


class Peer:
    """A raw socket with a deadline on everything, for tests that speak bytes."""

    def __init__(self, address: tuple[str, int], *, seconds_max: float = 5.0) -> None:
        self.socket = socket.create_connection(address, timeout=seconds_max)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes, or what came before the other side closed."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                break
            data += more
        return data

    def expect(self, data: bytes) -> None:
        """The next bytes are exactly these."""
        found = self.receive(len(data))
        assert found == data, f"expected {data.hex(' ')}, got {found.hex(' ')}"

    def expect_close(self) -> None:
        """The other side closes, and says nothing more."""
        try:
            rest = self.socket.recv(4096)
        except ConnectionResetError:
            return
        assert rest == b"", f"expected the end, got {rest.hex(' ')}"

    def expect_nothing(self, seconds: float = 0.2) -> None:
        """Nothing comes for a while, and the connection stays open."""
        self.socket.settimeout(seconds)
        try:
            found = self.socket.recv(4096)
        except TimeoutError:
            return
        finally:
            self.socket.settimeout(5)
        raise AssertionError(f"expected nothing, got {found.hex(' ') or 'the end'}")
