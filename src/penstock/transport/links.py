"""Parts that links of several transports share: connection numbers, peer names, input, limits."""

import asyncio
import itertools
import socket
from typing import Final

from penstock.limits import TCP_IDLE_SECONDS, TCP_PROBE_SECONDS, TCP_PROBES_MAX
from penstock.ports import Handler

__all__ = [
    "InputBuffer",
    "detect_loss",
    "drained_bytes",
    "next_connection_number",
    "peer_host",
    "peer_name",
]

_NUMBERS: Final = itertools.count(1)


def next_connection_number() -> int:
    """Return a number that no other connection of this process has, on any transport."""
    return next(_NUMBERS)


def peer_name(transport: asyncio.BaseTransport) -> str:
    """Return the peer's address for logs: host and port, or the path of a socket file."""
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")


def peer_host(transport: asyncio.BaseTransport) -> str:
    """Return the peer's IP address; empty for a socket file."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else ""


def detect_loss(connected: socket.socket) -> None:
    """Let the operating system end a TCP connection whose peer vanished without closing it."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", TCP_IDLE_SECONDS),
        ("TCP_KEEPINTVL", TCP_PROBE_SECONDS),
        ("TCP_KEEPCNT", TCP_PROBES_MAX),
    ):
        if hasattr(socket, option):  # not every system has all options
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def drained_bytes(congested_bytes: int) -> int:
    """Return the buffered bytes up to which a congested link is drained.

    A transport must report that it is full above these, or nothing tells when it has sent them.
    """
    return max(1, congested_bytes // 4)


class InputBuffer:
    """Passes received chunks to a handler and keeps the bytes that the handler did not take.

    Those are the start of an incomplete frame, or all input while paused.
    """

    __slots__ = ("_pauses", "_receiving", "_waiting", "handler")

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self._waiting = bytearray()
        self._pauses = 0
        self._receiving = False

    @property
    def paused(self) -> bool:
        """Whether a `pause` has no `resume` yet."""
        return self._pauses > 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the handler has not taken."""
        return len(self._waiting)

    def feed(self, chunk: bytes) -> None:
        """Offer the waiting bytes and `chunk` to the handler; raise what it raises."""
        if not self._waiting and not self._pauses:
            with memoryview(chunk) as view:
                taken = self._offer(view)
            if taken < len(chunk):
                self._waiting += chunk[taken:]
            return
        self._waiting += chunk
        self._offer_waiting()

    def pause(self) -> bool:
        """Offer nothing until `resume`; return True for the first of nested pauses."""
        self._pauses += 1
        return self._pauses == 1

    def resume(self) -> bool:
        """Undo one `pause`; return True if it was the last. Then call `flush`."""
        self._pauses -= 1
        return self._pauses == 0

    def flush(self) -> None:
        """Offer the waiting bytes to the handler; raise what it raises."""
        if self._waiting and not self._receiving:  # else the running call continues
            self._offer_waiting()

    def close(self) -> Handler | None:
        """Return the handler and offer it nothing more."""
        handler, self.handler = self.handler, None
        return handler

    def _offer_waiting(self) -> None:
        if self._pauses:
            return
        with memoryview(self._waiting) as view:
            taken = self._offer(view)
        del self._waiting[:taken]

    def _offer(self, view: memoryview) -> int:
        if self.handler is None:
            return len(view)
        self._receiving = True
        try:
            return self.handler.received(view)
        finally:
            self._receiving = False
