"""The TLS handshake of an accepted connection, which counts as a connection from its first byte."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from penstock.transport.links import next_connection_number, peer_host, peer_name

__all__ = ["TlsHandshake", "TlsHandshakeOwner", "secured"]

TLS_SHUTDOWN_SECONDS_MAX: Final = 2.0


async def secured(
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    context: ssl.SSLContext,
    *,
    early: Callable[[], bytes],
    seconds_max: float,
) -> asyncio.Transport | None:
    """Return the transport of a connection after its TLS handshake, None if that fails.

    `early` returns what the connection received before TLS took over: an event loop reads before
    the task of this coroutine runs. `protocol` may get data before this returns.
    """
    loop = asyncio.get_running_loop()
    starting = loop.create_task(
        loop.start_tls(
            transport,
            protocol,
            context,
            server_side=True,
            ssl_handshake_timeout=seconds_max,
            ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS_MAX,
        )
    )
    try:
        await asyncio.sleep(0)  # the task replaces the protocol of the transport
        await asyncio.sleep(0)  # the new protocol gets its transport
        if not starting.done():
            if transport.is_closing():  # the end was reported to the protocol before TLS
                raise ConnectionResetError
            _feed(transport.get_protocol(), early())
        async with asyncio.timeout(seconds_max):
            return await starting
    except (OSError, RuntimeError):  # includes errors of TLS and time-outs
        transport.abort()
        return None
    finally:
        starting.cancel()


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give received bytes to the protocol of TLS."""
    receiver = cast("asyncio.BufferedProtocol", protocol)
    while data:
        buffer = memoryview(receiver.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        receiver.buffer_updated(size)
        data = data[size:]


class TlsHandshakeOwner(Protocol):
    """The listener that connections belong to."""

    def handshake_begun(self, handshake: "TlsHandshake") -> bool:
        """Count a connection; return False if it is refused."""

    def handshake_ended(self, handshake: "TlsHandshake") -> None:
        """Count the end of a handshake. If it succeeded, its connection opens next."""


class TlsHandshake(asyncio.Protocol):
    """The protocol of a connection until its handshake is done."""

    established: Final = False

    def __init__(
        self,
        owner: TlsHandshakeOwner,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        *,
        seconds_max: float,
    ) -> None:
        self._owner = owner
        self._new_protocol = new_protocol
        self._context = context
        self._seconds_max = seconds_max
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.connection = next_connection_number()
        self.peer = ""
        self.host = ""
        self.descriptor = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless the owner refuses the connection."""
        self._transport = accepted = cast("asyncio.Transport", transport)
        self.peer = peer_name(transport)
        self.host = peer_host(transport)
        self.descriptor = transport.get_extra_info("socket").fileno()
        if not self._owner.handshake_begun(self):
            accepted.abort()
            return
        self._task = asyncio.get_running_loop().create_task(self._run(accepted))

    def data_received(self, data: bytes) -> None:
        """Keep the first bytes of the handshake."""
        self._early += data

    async def _run(self, transport: asyncio.Transport) -> None:
        protocol = self._new_protocol()
        made = None
        try:
            made = await secured(
                transport,
                protocol,
                self._context,
                early=lambda: bytes(self._early),
                seconds_max=self._seconds_max,
            )
        finally:
            self._owner.handshake_ended(self)
        if made is not None and not made.is_closing():
            protocol.connection_made(made)

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection now: nothing was written."""
        self.abort()
