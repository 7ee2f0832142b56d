"""Subscriptions of disconnected clients, stored for a while in case they reconnect."""

from penstock.core.sessions import Session
from penstock.core.timers import Timer, Timers
from penstock.limits import RESUME_SECONDS_MAX, RESUMES_MAX

__all__ = ["Resumption"]


class Resumption:
    """Subscriptions of disconnected clients, by principal and client name.

    Clients without a name of their own are not stored: they cannot be recognised.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        seconds_max: float = RESUME_SECONDS_MAX,
        clients_max: int = RESUMES_MAX,
    ) -> None:
        self._timers = timers
        self._seconds_max = seconds_max
        self._clients_max = clients_max
        self._kept: dict[tuple[str, str], tuple[dict[str, int], Timer]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, session: Session, positions: dict[str, int]) -> None:
        """Store a session's subscriptions with the next offset of each.

        At the limit, remove the oldest client.
        """
        if not positions or session.name == str(session.number):
            return
        key = (session.principal.name, session.name)
        self.take(*key)
        if len(self._kept) >= self._clients_max:
            self.take(*next(iter(self._kept)))
        timer = self._timers.after(self._seconds_max, lambda: self._forget(key))
        self._kept[key] = (positions, timer)

    def _forget(self, key: tuple[str, str]) -> None:
        self._kept.pop(key, None)

    def take(self, principal: str, name: str) -> dict[str, int]:
        """Return and remove a client's stored subscriptions: patterns and their next offsets."""
        positions, timer = self._kept.pop((principal, name), ({}, None))
        if timer is not None:
            timer.cancel()
        return positions
