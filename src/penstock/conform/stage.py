"""What the steps of a case work with: connections to the server, and names that nobody else has."""

import secrets
import ssl
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.address import Address
from penstock.conform.peer import Peer
from penstock.conform.wires import open_wire

__all__ = ["Stage"]

SomePeer = TypeVar("SomePeer", bound=Peer)


class Stage:
    """The server under test, for one case; all its connections end with it."""

    def __init__(
        self, address: Address, *, seconds_max: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self._address = address
        self._seconds_max = seconds_max
        self._tls = tls
        self._peers: list[Peer] = []
        self._token = secrets.token_hex(4)

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
        wire = open_wire(self._address, seconds_max=self._seconds_max, tls=self._tls)
        peer = kind(wire, seconds_max=self._seconds_max)
        self._peers.append(peer)
        return peer

    @property
    def heard(self) -> bool:
        """Whether the server has sent anything."""
        return any(peer.heard for peer in self._peers)

    def name(self, suffix: str = "t") -> str:
        """Return the name of a topic that is this case's own."""
        return f"conform/{self._token}/{suffix}"
