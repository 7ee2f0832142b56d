"""HTTP/1.1 on connections that the broker accepted: uvicorn's protocol, the broker's limits."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from penstock.limits import (
    HANDSHAKE_SECONDS_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_IDLE_SECONDS_MAX,
)

__all__ = ["HttpConnection", "HttpSettings"]

# The library tells of every request that is not HTTP, in prose; the application tells what matters.
for _name in ("uvicorn.error", "uvicorn.access"):
    _logger = logging.getLogger(_name)
    _logger.addHandler(logging.NullHandler())
    _logger.propagate = False


class HttpSettings:
    """What the connections of a listener have in common."""

    def __init__(self, application: ASGIApp) -> None:
        self.config = Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=int(HTTP_IDLE_SECONDS_MAX),
            limit_concurrency=HTTP_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HTTP_HEAD_BYTES_MAX,
        )
        self.config.load()
        self.state = ServerState()


class HttpConnection(H11Protocol):
    """One connection; to its listener it is a link that can be closed."""

    def __init__(
        self,
        settings: HttpSettings,
        *,
        connection: int,
        peer: str,
        closed: Callable[["HttpConnection"], None],
    ) -> None:
        super().__init__(settings.config, settings.state, {"connection": connection})
        self.connection = connection
        self.peer = peer
        self._closed = closed
        self._deadline: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Hand on what came; the head of a request must be whole in time."""
        super().data_received(data)
        if not self._idle:
            self._forget_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HANDSHAKE_SECONDS_MAX, self.abort)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._forget_deadline()
        super().on_response_complete()

    def eof_received(self) -> Any:  # noqa: ANN401
        """Answer who has no more to say, unless TLS does not let us."""
        if self._idle or self.transport.get_extra_info("sslcontext") is not None:
            return None
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._forget_deadline()
        try:
            super().connection_lost(exc)
        finally:
            self._closed(self)

    @property
    def _idle(self) -> bool:
        cycle: Any = self.cycle  # there is none before the first request, whatever its type says
        return cycle is None or bool(cycle.response_complete)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def close(self) -> None:
        """End the connection behind the answer that is under way."""
        if not self.transport.is_closing():
            self.shutdown()

    def abort(self) -> None:
        """End the connection now."""
        self.transport.abort()
