"""Handlers of `urllib` that keep the connection of the last request, to see when the server ends.

The kept socket is another descriptor of the same connection, without TLS: it tells when the
connection ends, not what is in it.
"""

import http.client
import os
import socket
import ssl
import time
from typing import Any, Self
from urllib.request import HTTPHandler, HTTPSHandler, Request

__all__ = ["KeptConnection", "PlainHandler", "TlsHandler"]


class KeptConnection:
    """The connection of the last request, to the end of the `with` statement."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def keep(self, connected: socket.socket) -> None:
        """Keep a connection, instead of the last one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = socket.socket(fileno=os.dup(connected.fileno()))

    def wait_for_end(self, seconds_max: float) -> bool:
        """Return whether the server ends the connection within `seconds_max`."""
        if self._socket is None:
            return True
        deadline = time.monotonic() + seconds_max
        try:
            # Half-close: else a server with TLS waits for the end of the TLS session.
            self._socket.shutdown(socket.SHUT_WR)
            while True:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                if not self._socket.recv(4096):
                    return True
        except TimeoutError:
            return False
        except OSError:  # it was reset
            return True


class PlainHandler(HTTPHandler):
    """Opens http URLs."""

    def __init__(self, kept: KeptConnection) -> None:
        super().__init__()
        self._kept = kept

    def http_open(self, req: Request) -> http.client.HTTPResponse:
        """See HTTPHandler."""

        def connection(host: str, **options: Any) -> "_PlainConnection":  # noqa: ANN401
            return _PlainConnection(self._kept, host, **options)

        return self.do_open(connection, req)


class TlsHandler(HTTPSHandler):
    """Opens https URLs."""

    def __init__(self, kept: KeptConnection, tls: ssl.SSLContext) -> None:
        super().__init__(context=tls)
        self._kept = kept
        self._tls = tls

    def https_open(self, req: Request) -> http.client.HTTPResponse:
        """See HTTPSHandler."""

        def connection(host: str, **options: Any) -> "_TlsConnection":  # noqa: ANN401
            return _TlsConnection(self._kept, host, **options)

        return self.do_open(connection, req, context=self._tls)


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, kept: KeptConnection, host: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(host, **options)
        self._kept = kept

    def connect(self) -> None:
        super().connect()
        self._kept.keep(self.sock)


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(self, kept: KeptConnection, host: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(host, **options)
        self._kept = kept

    def connect(self) -> None:
        super().connect()
        self._kept.keep(self.sock)
