"""A whole broker in one event loop: made, started, stopped."""

import asyncio
from collections.abc import Mapping

import structlog

from penstock.core.broker import Broker, BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.log.memory import MemoryLog
from penstock.ports import LogWriter
from penstock.server.clock import SystemClock
from penstock.server.listener import StreamListener
from penstock.transport.stream import ReceiveBuffer

__all__ = ["Server"]

log = structlog.get_logger("penstock.server")

TICK_SECONDS = 0.05
"""How late a timer may be."""


class Server:
    """Owns the broker, its listeners and its timers."""

    def __init__(
        self,
        *,
        settings: BrokerSettings | None = None,
        log: LogWriter | None = None,
        channels: Mapping[int, str] | None = None,
    ) -> None:
        self.broker = Broker(log=log or MemoryLog(), clock=SystemClock(), settings=settings)
        names = channels or {channel: f"channel/{channel}" for channel in range(256)}
        for channel, name in names.items():
            self.broker.topics.bind_channel(channel, name)
        self._buffer = ReceiveBuffer()
        self._listeners: list[StreamListener] = []
        self._ticking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Let time pass for the broker."""
        self._tick()

    async def listen_tcp(
        self, host: str = "127.0.0.1", port: int = 0, *, options: GatewayOptions | None = None
    ) -> tuple[str, int]:
        """Take connections at an address; return it, with the port that port 0 became."""
        listener = StreamListener(self.broker, self._buffer, options=options)
        address = await listener.listen_tcp(host, port)
        self._listeners.append(listener)
        return address

    async def stop(self, *, seconds_max: float = 5.0) -> None:
        """Stop accepting, send what is written, close; what is not sent in time is dropped."""
        for listener in self._listeners:
            listener.stop_accepting()
        for listener in self._listeners:
            await listener.close(seconds_max=seconds_max)
        if self._ticking is not None:
            self._ticking.cancel()

    def _tick(self) -> None:
        try:
            self.broker.timers.run_due()
        except Exception:  # time must not stop for everyone because one timer broke
            log.exception("timer failed")
        self._ticking = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
