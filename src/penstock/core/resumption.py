"""Subscriptions of clients that were cut off, kept for a while in case they come back."""

from penstock.core.sessions import Session
from penstock.core.timers import Timer, Timers
from penstock.limits import RESUME_SECONDS_MAX, RESUMES_MAX

__all__ = ["Resumption"]


class Resumption:
    """Remembers by principal and name: nobody resumes what another left.

    Who has no name of its own cannot be known again, and is not remembered.
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
        """Remember what a session subscribes to, and the first offset that it was not sent of each.

        At the limit the oldest is forgotten.
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
        """Return what a client that is back had: patterns, and where each goes on. Forget it."""
        positions, timer = self._kept.pop((principal, name), ({}, None))
        if timer is not None:
            timer.cancel()
        return positions
