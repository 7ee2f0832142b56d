"""Log-ins of the console. Credentials stay in the memory of this process."""

import dataclasses
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.console.api import BrokerApi
from penstock.console.limits import SESSION_SECONDS_MAX, SESSIONS_MAX

__all__ = ["COOKIE", "LogIn", "LogIns", "login_of"]

COOKIE: Final = "penstock-console"


@dataclasses.dataclass(slots=True)
class LogIn:
    """A principal of the broker, and the client of the API with its credentials."""

    api: BrokerApi
    name: str
    anonymous: bool
    administers: frozenset[str]
    log: str = ""
    """The kind of the broker's log, as the API names it."""
    ends: float = float("inf")
    """When it ends, by the clock of `LogIns`; never for a visitor without a log-in."""

    @property
    def by_form(self) -> bool:
        """Whether somebody entered credentials."""
        return self.ends != float("inf")

    def has_area(self, area: str) -> bool:
        """Return whether the principal administers an area; the broker has the last word."""
        return area in self.administers


def login_of(api: BrokerApi, me: Mapping[str, Any]) -> LogIn:
    """Return the log-in that `/api/me` describes."""
    return LogIn(
        api=api,
        name=str(me["name"]),
        anonymous=bool(me["anonymous"]),
        administers=frozenset(me["administers"]),
        log=str(me["log"]),
    )


class LogIns:
    """Log-ins by the secret in their cookie; at most SESSIONS_MAX, for SESSION_SECONDS_MAX."""

    def __init__(
        self,
        *,
        kept_max: int = SESSIONS_MAX,
        seconds_max: float = SESSION_SECONDS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept_max = kept_max
        self._seconds_max = seconds_max
        self._clock = clock
        self._kept: OrderedDict[str, LogIn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, login: LogIn) -> str:
        """Keep a log-in; return the secret of its cookie."""
        secret = secrets.token_urlsafe(32)
        login.ends = self._clock() + self._seconds_max
        self._kept[secret] = login
        while len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return secret

    def find(self, secret: str | None) -> LogIn | None:
        """Return the log-in of a cookie, None if there is none or it has ended."""
        login = self._kept.get(secret or "")
        if login is None:
            return None
        if login.ends <= self._clock():
            self.remove(secret)
            return None
        return login

    def remove(self, secret: str | None) -> LogIn | None:
        """End a log-in; return it, None if there is none."""
        return self._kept.pop(secret or "", None)
