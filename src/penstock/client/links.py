"""Network connections to a broker. No other module of the client touches sockets.

`stdio` has the connection of a program to the broker that started it.
"""

import asyncio
import os
import re
import socket
import ssl
from typing import Final, Protocol, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from penstock.client.address import Address
from penstock.client.errors import ConnectFailed, TlsFailed, Unreachable, Untrusted
from penstock.client.stdio import open_stdio
from penstock.limits import MIB
from penstock.protocols.fleximq import FLEXIMQ_MESSAGE_BYTES_CEILING

__all__ = ["Link", "Receiver", "open_link"]

WRITE_BUFFER_BYTES_MAX: Final = 1 * MIB
"""`drain` waits while more than this is unsent."""

TCP_IDLE_SECONDS: Final = 10
TCP_PROBE_SECONDS: Final = 2
TCP_PROBES_MAX: Final = 3
"""The operating system probes a silent connection, and ends it if no probe is answered.

TCP_USER_TIMEOUT is not set: it would end a connection while the broker pauses a publisher."""

_NUMBER: Final = re.compile(r"\[Errno (-?\d+)\] ")


class Receiver(Protocol):
    """Receives the bytes of a link."""

    def received(self, data: bytes) -> None:
        """Process received bytes."""

    def lost(self, reason: str) -> None:
        """Handle the end of the connection. No call follows."""


class Link(Protocol):
    """A network connection of the client."""

    def write(self, data: bytes) -> None:
        """Queue `data` for sending; drop it if the connection has ended."""

    async def drain(self) -> None:
        """Wait until the write buffer is below its limit."""

    def pause(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Resume reading."""

    def close(self) -> None:
        """Close the connection after all written data is sent."""

    def abort(self) -> None:
        """Close the connection and drop unsent data."""


async def open_link(address: Address, receiver: Receiver, tls: ssl.SSLContext | None) -> Link:
    """Open a link to `address`; raise ConnectFailed."""
    try:
        if address.scheme == "stdio":
            return await open_stdio(address, receiver)
        if address.scheme in {"ws", "wss"}:
            return await _open_web_socket(address, receiver, tls)
        return await _open_stream(address, receiver, tls)
    except WebSocketException as error:
        raise ConnectFailed(str(address), _reason(error)) from None
    except OSError as error:  # includes errors of TLS and of name resolution
        raise _failure(address, error) from None


def _failure(address: Address, error: OSError) -> ConnectFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(str(address), f"the certificate: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return TlsFailed(str(address), (error.reason or str(error)).replace("_", " ").lower())
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        if address.scheme in {"tls", "wss"}:
            return TlsFailed(str(address), "closed by the other side")
        return ConnectFailed(str(address), "closed by the other side")
    return Unreachable(str(address), _reason(error))


def _reason(error: Exception) -> str:
    """Return the reason as the system words it, without asyncio's list of addresses."""
    text = str(error) or type(error).__name__
    numbers = set(_NUMBER.findall(text))
    if len(numbers) == 1 and "Connect call failed" in text:
        return os.strerror(int(numbers.pop())).lower()
    return _NUMBER.sub("", text)


async def _open_stream(
    address: Address, receiver: Receiver, tls: ssl.SSLContext | None
) -> "StreamLink":
    loop = asyncio.get_running_loop()
    if address.scheme == "ipc":
        _, link = await loop.create_unix_connection(lambda: StreamLink(receiver), address.path)
        return link
    context = (tls or ssl.create_default_context()) if address.scheme == "tls" else None
    transport, link = await loop.create_connection(
        lambda: StreamLink(receiver), address.host, address.port, ssl=context
    )
    _detect_loss(transport)
    return link


def _detect_loss(transport: asyncio.BaseTransport) -> None:
    """Let the operating system end a connection whose peer has vanished."""
    connected = transport.get_extra_info("socket")
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", TCP_IDLE_SECONDS),
        ("TCP_KEEPINTVL", TCP_PROBE_SECONDS),
        ("TCP_KEEPCNT", TCP_PROBES_MAX),
    ):
        if hasattr(socket, option):  # not every system has all options
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class StreamLink(asyncio.Protocol):
    """A `Link` over TCP, TLS or IPC."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.Transport | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._receiver.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._drained.set()
        self._receiver.lost(str(exc) if exc else "closed by the other side")

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._drained.set()

    # --- the client's side ------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """See Link."""
        if self._transport is not None:
            self._transport.write(data)

    async def drain(self) -> None:
        """See Link."""
        await self._drained.wait()

    def pause(self) -> None:
        """See Link."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """See Link."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """See Link."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """See Link."""
        if self._transport is not None:
            self._transport.abort()


# --- WebSocket ------------------------------------------------------------------------------------


async def _open_web_socket(
    address: Address, receiver: Receiver, tls: ssl.SSLContext | None
) -> "WebSocketLink":
    context = (tls or ssl.create_default_context()) if address.scheme == "wss" else None
    connection = await connect(
        address.url,
        ssl=context,
        compression=None,
        max_size=FLEXIMQ_MESSAGE_BYTES_CEILING,
        ping_interval=None,  # the keep-alive of the protocols is used instead
    )
    _detect_loss(connection.transport)
    return WebSocketLink(connection, receiver)


class WebSocketLink:
    """A `Link` over WebSocket: the byte stream in binary messages of any size."""

    def __init__(self, connection: ClientConnection, receiver: Receiver) -> None:
        self._socket = connection
        self._receiver = receiver
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._ending = False
        self._wanted = asyncio.Event()  # set when `_send` has data to send, or must close
        self._drained = asyncio.Event()
        self._drained.set()
        self._reading = asyncio.Event()
        self._reading.set()
        self._sender = asyncio.create_task(self._send())
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        reason = "closed by the other side"
        try:
            while True:
                await self._reading.wait()
                data = await self._socket.recv()
                if isinstance(data, str):
                    reason = "a text message came"
                    return
                self._receiver.received(data)
        except ConnectionClosed as closed:
            reason = str(closed) or reason
        except asyncio.CancelledError:
            reason = "aborted"
        finally:
            self._ending = True
            self._drained.set()
            self._sender.cancel()
            self._socket.transport.abort()
            self._receiver.lost(reason)

    async def _send(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                data, self._unsent = b"".join(self._unsent), []
                if data:
                    await self._socket.send(data)
                    self._unsent_bytes -= len(data)
                if self._unsent_bytes <= WRITE_BUFFER_BYTES_MAX:
                    self._drained.set()
                if self._ending and not self._unsent:
                    await self._socket.close()
                    return
        except ConnectionClosed:
            self._drained.set()

    def write(self, data: bytes) -> None:
        """See Link."""
        if self._ending:
            return
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > WRITE_BUFFER_BYTES_MAX:
            self._drained.clear()
        self._wanted.set()

    async def drain(self) -> None:
        """See Link."""
        await self._drained.wait()

    def pause(self) -> None:
        """See Link; a message whose reception has begun is still delivered."""
        self._reading.clear()

    def resume(self) -> None:
        """See Link."""
        self._reading.set()

    def close(self) -> None:
        """See Link."""
        self._ending = True
        self._reading.set()
        self._wanted.set()

    def abort(self) -> None:
        """See Link."""
        self._ending = True
        self._reader.cancel()
