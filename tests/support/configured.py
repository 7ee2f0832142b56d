"""A broker that runs by a configuration, in a thread of its own, and can be reloaded."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import uvloop

from penstock.server.config import Config
from penstock.server.credentials import Authenticator
from penstock.server.run import Running
from penstock.server.server import Server
from penstock.server.storages import open_storage


class ConfiguredBroker:
    """`with ConfiguredBroker(config) as broker:` and connect to `broker.url(0)`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), daemon=True)
        self.running: Running
        self._loop: asyncio.AbstractEventLoop
        self._done: asyncio.Event

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the broker did not start"
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

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the broker's loop."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def reload(self, config: Config) -> None:
        """Apply another configuration, as SIGHUP does."""
        self.call(lambda: self.running.reload(config))

    def url(self, index: int) -> str:
        """Where a listener is."""
        return self.running.addresses[index].location

    def port(self, index: int) -> int:
        return self.running.addresses[index].port

    def principals(self) -> list[str]:
        """The principals of all sessions."""
        sessions = self.running.server.broker.sessions
        return sorted(self.call(lambda: [each.principal.name for each in sessions]))

    def until(self, condition: Callable[[], Any], *, seconds_max: float = 10.0) -> None:
        """Wait for a condition; it must come true in time."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.01)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        config = self._config
        server = Server(settings=config.broker_settings, storage=open_storage(config))
        self.running = Running(config, server, Authenticator(config))
        await self.running.start()
        self._ready.set()
        await self._done.wait()
        await self.running.stop()
