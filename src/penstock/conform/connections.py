"""Connections to a server under test: tcp, tls, ipc, ws and wss, blocking and with deadlines."""

import contextlib
import socket
import ssl
import time
from collections import deque
from typing import Final, Protocol

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidState, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from penstock.client.address import Address
from penstock.client.errors import ConnectFailed
from penstock.protocols.fleximq import FLEXIMQ_MESSAGE_BYTES_CEILING

__all__ = ["Connection", "ConnectionClosed", "open_connection", "open_datagrams"]

READ_BYTES: Final = 65_536


class ConnectionClosed(Exception):
    """The server has closed the connection."""


class Connection(Protocol):
    """A byte stream to and from the server."""

    def send(self, data: bytes) -> None:
        """Send all of `data`; raise ConnectionClosed."""

    def receive(self, seconds_max: float) -> bytes:
        """Return the next bytes; raise ConnectionClosed or TimeoutError."""

    def half_close(self) -> None:
        """Close the sending side only; raise ConnectionClosed if that is impossible."""

    def close(self) -> None:
        """Close the connection."""


def open_connection(
    address: Address, *, seconds_max: float, tls: ssl.SSLContext | None = None
) -> Connection:
    """Return a connection; raise ConnectFailed."""
    try:
        if address.scheme in {"ws", "wss"}:
            return _WebSocketConnection(address, seconds_max, tls)
        return _SocketConnection(address, seconds_max, tls)
    except (OSError, WebSocketException) as error:  # TLS and time-outs are OSError too
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectFailed(str(address), reason) from None


def open_datagrams(address: Address, *, seconds_max: float) -> Connection:
    """Return a UDP socket for the port with the number of this address."""
    return _DatagramConnection(address, seconds_max)


class _SocketConnection:
    def __init__(self, address: Address, seconds_max: float, tls: ssl.SSLContext | None) -> None:
        if address.scheme == "ipc":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(seconds_max)
            self._socket.connect(address.path)
            return
        plain = socket.create_connection((address.host, address.port), timeout=seconds_max)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        if address.scheme in {"tls", "wss"}:
            context = tls or ssl.create_default_context()
            self._socket = context.wrap_socket(plain, server_hostname=address.host)

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (ConnectionError, ssl.SSLError):
            raise ConnectionClosed from None

    def receive(self, seconds_max: float) -> bytes:
        self._socket.settimeout(max(seconds_max, 0.001))
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except (ConnectionError, ssl.SSLError):
            raise ConnectionClosed from None
        if not data:
            raise ConnectionClosed
        return data

    def half_close(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            raise ConnectionClosed
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            raise ConnectionClosed from None

    def close(self) -> None:
        self._socket.close()


class _DatagramConnection(_SocketConnection):
    """Datagrams: each `send` is one, each `receive` returns one."""

    def __init__(self, address: Address, seconds_max: float) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(seconds_max)
        self._socket.connect((address.host, address.port))


class _WebSocketConnection:
    """A WebSocket in one thread, because two threads must not use a TLS socket at once."""

    def __init__(self, address: Address, seconds_max: float, tls: ssl.SSLContext | None) -> None:
        self._socket = _SocketConnection(address, seconds_max, tls)
        self._protocol = ClientProtocol(
            parse_uri(address.url), max_size=FLEXIMQ_MESSAGE_BYTES_CEILING
        )
        self._message = bytearray()
        self._arrived: deque[bytes] = deque()
        deadline = time.monotonic() + seconds_max
        try:
            self._protocol.send_request(self._protocol.connect())
            self._flush()
            while self._protocol.state is State.CONNECTING:
                self._read(deadline - time.monotonic())
        except ConnectionClosed:
            self.close()
            raise ConnectionAbortedError("closed during the handshake") from None
        except OSError:
            self.close()
            raise
        if self._protocol.handshake_exc is not None:
            self.close()
            raise self._protocol.handshake_exc

    def send(self, data: bytes) -> None:
        if self._protocol.state is not State.OPEN:
            raise ConnectionClosed
        self._protocol.send_binary(data)
        self._flush()

    def receive(self, seconds_max: float) -> bytes:
        deadline = time.monotonic() + seconds_max
        while not self._arrived:
            self._read(deadline - time.monotonic())
        return self._arrived.popleft()

    def half_close(self) -> None:
        raise ConnectionClosed

    def close(self) -> None:
        with contextlib.suppress(ConnectionClosed, OSError, InvalidState):
            self._protocol.send_close()
            self._flush()
        self._socket.close()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.send(data)

    def _read(self, seconds_max: float) -> None:
        """Process the next bytes; raise ConnectionClosed or TimeoutError."""
        self._protocol.receive_data(self._socket.receive(seconds_max))
        self._flush()
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode in {Opcode.BINARY, Opcode.CONT}:
                self._message += event.data
                if event.fin:
                    self._arrived.append(bytes(self._message))
                    self._message.clear()
            elif event.opcode in {Opcode.TEXT, Opcode.CLOSE}:  # all five protocols are binary
                raise ConnectionClosed
        if self._protocol.parser_exc is not None:
            raise ConnectionClosed
