"""Connections to a server under test: tcp, tls, ipc, ws and wss, blocking and with deadlines."""

import contextlib
import socket
import ssl
from typing import Final, Protocol

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from penstock.client.address import Address
from penstock.client.errors import ConnectFailed
from penstock.limits import FLEXIMQ_MESSAGE_BYTES_CEILING

__all__ = ["Wire", "WireClosed", "open_wire"]

READ_BYTES: Final = 65_536


class WireClosed(Exception):
    """The other side has ended the connection."""


class Wire(Protocol):
    """The bytes of a connection."""

    def send(self, data: bytes) -> None:
        """Send all of `data`; raise WireClosed."""

    def receive(self, seconds_max: float) -> bytes:
        """Return what comes next; raise WireClosed or TimeoutError."""

    def close(self) -> None:
        """End it."""


def open_wire(address: Address, *, seconds_max: float, tls: ssl.SSLContext | None = None) -> Wire:
    """Return a connection; raise ConnectFailed."""
    try:
        if address.scheme in {"ws", "wss"}:
            return _WebSocketWire(address, seconds_max, tls)
        return _SocketWire(address, seconds_max, tls)
    except (OSError, WebSocketException) as error:  # TLS and time-outs are OSError too
        raise ConnectFailed(str(address), str(error) or type(error).__name__) from None


class _SocketWire:
    def __init__(self, address: Address, seconds_max: float, tls: ssl.SSLContext | None) -> None:
        if address.scheme == "ipc":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(seconds_max)
            self._socket.connect(address.path)
            return
        plain = socket.create_connection((address.host, address.port), timeout=seconds_max)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        if address.scheme == "tls":
            context = tls or ssl.create_default_context()
            self._socket = context.wrap_socket(plain, server_hostname=address.host)

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (ConnectionError, ssl.SSLError):
            raise WireClosed from None

    def receive(self, seconds_max: float) -> bytes:
        self._socket.settimeout(max(seconds_max, 0.001))
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except (ConnectionError, ssl.SSLError):
            raise WireClosed from None
        if not data:
            raise WireClosed
        return data

    def close(self) -> None:
        self._socket.close()


class _WebSocketWire:
    def __init__(self, address: Address, seconds_max: float, tls: ssl.SSLContext | None) -> None:
        self._open = contextlib.ExitStack()
        self._socket: ClientConnection = self._open.enter_context(
            connect(
                address.url,
                ssl=tls if address.scheme == "wss" else None,
                compression=None,
                max_size=FLEXIMQ_MESSAGE_BYTES_CEILING,
                open_timeout=seconds_max,
                close_timeout=seconds_max,
                ping_interval=None,
            )
        )

    def send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except ConnectionClosed:
            raise WireClosed from None

    def receive(self, seconds_max: float) -> bytes:
        try:
            data = self._socket.recv(timeout=seconds_max)
        except ConnectionClosed:
            raise WireClosed from None
        if isinstance(data, str):  # no protocol of ours is text
            raise WireClosed
        return data

    def close(self) -> None:
        self._open.close()
