"""Subscriptions of disconnected clients, stored for a while in case they reconnect."""

from collections import OrderedDict
from typing import TypeAlias

from penstock.core.partitions import Position
from penstock.core.sessions import Session
from penstock.core.timers import Timer, Timers
from penstock.limits import RESUME_SECONDS_MAX, RESUMES_MAX

__all__ = ["ClientKey", "Resumption", "client_key"]

ClientKey: TypeAlias = tuple[str, str, str]


def client_key(session: Session) -> ClientKey | None:
    """Return what tells one client from all others; None if it has no name of its own."""
    return None if session.name == str(session.number) else _key(session)


def _key(session: Session) -> ClientKey:
    principal = session.principal
    address = session.link.host if principal.is_anonymous else ""
    return principal.name, address, session.name


class Resumption:
    """Subscriptions of disconnected clients, by principal and client name.

    Anonymous clients are also told apart by their address: any client can choose any name. Clients
    without a name of their own are not stored: they cannot be recognised.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        seconds_max: float = RESUME_SECONDS_MAX,
        clients_max: int = RESUMES_MAX,
    ) -> None:
        self._timers = timers
        self.seconds_max = seconds_max
        """Time that a client is kept."""
        self._clients_max = clients_max
        self._kept: OrderedDict[ClientKey, tuple[dict[str, Position], Timer]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, session: Session, positions: dict[str, Position]) -> None:
        """Store a session's subscriptions with the position of each.

        At the limit, remove the oldest client.
        """
        if not positions or session.name == str(session.number):
            return
        key = _key(session)
        self._take(key)
        if len(self._kept) >= self._clients_max:
            self._take(next(iter(self._kept)))
        timer = self._timers.after(self.seconds_max, lambda: self._forget(key))
        self._kept[key] = (positions, timer)

    def _forget(self, key: ClientKey) -> None:
        self._kept.pop(key, None)

    def take(self, session: Session) -> dict[str, Position]:
        """Return and remove what the client of a session had: patterns and their positions."""
        return self._take(_key(session))

    def peek(self, key: ClientKey) -> dict[str, Position] | None:
        """Return what a client has here; None if it is not kept."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def drop(self, key: ClientKey) -> dict[str, Position] | None:
        """Return and remove what a client has here; None if it is not kept."""
        return self._take(key) if key in self._kept else None

    def _take(self, key: ClientKey) -> dict[str, Position]:
        positions, timer = self._kept.pop(key, ({}, None))
        if timer is not None:
            timer.cancel()
        return positions
