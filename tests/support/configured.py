"""A broker that runs by a configuration, in a thread of its own, and can be reloaded."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.server.config import Config
from penstock.server.credentials import Authenticator
from penstock.server.run import Running
from penstock.server.server import Server
from penstock.server.storages import open_storage, open_stored_counts
from tests.support.live import LiveBroker


class ConfiguredBroker(LiveBroker):
    """`with ConfiguredBroker(config) as broker:` and connect to `broker.url(0)`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config
        self.running: Running

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
        """Wait for a condition, asked in the caller's thread; it must come true in time."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.01)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        config = self._config
        storage = open_storage(config)
        server = Server(
            settings=config.broker_settings,
            storage=storage,
            stored_counts=open_stored_counts(config, storage),
            memory=config.new_memory_budget(),
        )
        self.running = Running(config, server, Authenticator(config))
        await self.running.start()
        self._ready.set()
        await self._done.wait()
        await self.running.stop()
