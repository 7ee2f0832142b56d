"""HTTP/1.1 on connections that the broker accepted: uvicorn's protocol, the broker's limits."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from h11 import SEND_BODY
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
from penstock.memory import Account, Purpose
from penstock.transport.certificate_names import certificate_names
from penstock.transport.links import peer_host

__all__ = ["HttpConnection", "HttpSettings"]

# uvicorn logs every malformed request as prose; the application logs what is relevant.
for _name in ("uvicorn.error", "uvicorn.access"):
    _logger = logging.getLogger(_name)
    _logger.addHandler(logging.NullHandler())
    _logger.propagate = False


class HttpSettings:
    """Settings that all connections of a listener share."""

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
    """One HTTP connection; to the authenticator it is a `core.access.Peer`."""

    def __init__(
        self,
        settings: HttpSettings,
        *,
        connection: int,
        peer: str,
        account: Account,
        closed: Callable[["HttpConnection"], None],
    ) -> None:
        state = {"connection": connection, "peer": self, "account": account}
        super().__init__(settings.config, settings.state, state)
        self.connection = connection
        self.account = account
        self._head_bytes = 0
        self._received = 0  # bytes since the start
        account.holder = self
        self.peer = peer
        self.host = ""
        self.certificate_names: frozenset[str] = frozenset()
        self._closed = closed
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note how the transport identifies the client."""
        self.host = peer_host(transport)
        self.certificate_names = certificate_names(transport)
        super().connection_made(transport)

    @property
    def has_left(self) -> bool:
        """See core.access.Peer."""
        return bool(self.transport.is_closing())

    def data_received(self, data: bytes) -> None:
        """Process bytes; abort if the head of a request is not complete in time."""
        super().data_received(data)
        self._hold_input(len(data))
        if not self.idle:
            self._forget_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HANDSHAKE_SECONDS_MAX, self.abort)

    def _hold_input(self, size: int) -> None:
        """Hold the head of a request, or the part of its body that is not processed yet."""
        cycle: Any = self.cycle
        self._received += size
        self._head_bytes = self._head_bytes + size if self.idle else 0
        waiting = 0 if cycle is None else len(cycle.body)
        if not self.account.hold(Purpose.INPUT, self._head_bytes + waiting):
            self.abort()

    def measure(self) -> int:
        """See memory.Holder; bytes that are not sent are part of the response."""
        self._hold_input(0)
        return self._received - self.transport.get_write_buffer_size()

    def evict(self) -> None:
        """See memory.Holder."""
        self.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._forget_deadline()
        super().on_response_complete()

    def eof_received(self) -> Any:  # noqa: ANN401
        """On half-close, finish the response. TLS connections cannot half-close."""
        if self.idle or self.transport.get_extra_info("sslcontext") is not None:
            return None
        if self.conn.their_state is SEND_BODY:  # the rest of the body cannot come
            return None
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline and report the end to the owner."""
        self._forget_deadline()
        self.account.close()
        try:
            super().connection_lost(exc)
        finally:
            self._closed(self)

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle  # None before the first request, although its type does not say so
        return cycle is None or bool(cycle.response_complete)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def close(self) -> None:
        """Close the connection after the response that is being sent."""
        if not self.transport.is_closing():
            self.shutdown()

    def abort(self) -> None:
        """Close the connection now."""
        self.transport.abort()
