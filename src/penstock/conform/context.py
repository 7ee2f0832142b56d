"""The context that a case runs in: connections to the server, and topic names of its own."""

import secrets
import ssl
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.address import Address
from penstock.conform.connections import Connection, open_connection, open_datagrams
from penstock.conform.peer import Peer, Skipped

__all__ = ["CaseContext"]

SomePeer = TypeVar("SomePeer", bound=Peer)
Value = TypeVar("Value")


class CaseContext:
    """The server under test, for one case. All connections close at the end of the case.

    `parameter` is the value of `each` that the case is at; a failure reports it. A subclass may
    override `connect`, to spread the clients of a case over several servers.
    """

    def __init__(
        self,
        address: Address,
        *,
        seconds_max: float,
        tls: ssl.SSLContext | None = None,
        restart: Callable[[], Address] | None = None,
    ) -> None:
        self._address = address
        self._restart = restart
        self._seconds_max = seconds_max
        self._tls = tls
        self._peers: list[Peer] = []
        self._token = secrets.token_hex(4)
        self.parameter = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for peer in self._peers:
            peer.close()

    def open(self, kind: type[SomePeer]) -> SomePeer:
        """Return a new connection; raise ConnectFailed."""
        peer = kind(self.connect(len(self._peers)), seconds_max=self._seconds_max)
        self._peers.append(peer)
        return peer

    def connect(self, number: int) -> Connection:  # noqa: ARG002
        """Return connection `number` of the case, from 0 on; raise ConnectFailed."""
        return open_connection(self._address, seconds_max=self._seconds_max, tls=self._tls)

    def open_datagrams(self, kind: type[SomePeer]) -> SomePeer:
        """Return a peer that sends datagrams to the port with the server's number."""
        connection = open_datagrams(self._address, seconds_max=self._seconds_max)
        peer = kind(connection, seconds_max=self._seconds_max)
        self._peers.append(peer)
        return peer

    def restart(self) -> None:
        """Restart the server, which may get another address; raise Skipped if it cannot be done."""
        if self._restart is None:
            raise Skipped("the server cannot be restarted from here")
        self._address = self._restart()

    @property
    def heard(self) -> bool:
        """Whether the server has sent anything."""
        return any(peer.heard for peer in self._peers)

    @property
    def sent(self) -> bytes:
        """The bytes that were sent last, on any connection."""
        return max(self._peers, key=lambda peer: peer.sent_at).sent if self._peers else b""

    def name(self, suffix: str = "t") -> str:
        """Return a topic name that no other case uses."""
        return f"conform/{self._token}/{suffix}"

    def topic(self, suffix: bytes = b"t") -> bytes:
        """Return such a name as bytes."""
        return self.name("").encode() + suffix

    def each(self, values: Iterable[Value]) -> Iterator[Value]:
        """Yield the parameters of a case, so that a failure reports the current one."""
        for value in values:
            self.parameter = _shown(value)
            yield value
        self.parameter = ""


def _shown(value: object) -> str:
    text = value.hex(" ") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
