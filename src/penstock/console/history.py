"""The last 15 minutes of a broker, read from its API and kept in this process."""

import asyncio
import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.console.api import ApiRefused, BrokerApi, BrokerAway
from penstock.console.limits import (
    GROUPS_CHARTED_MAX,
    HISTORY_SECONDS,
    MEASURE_SECONDS,
    REFUSED_SECONDS,
    STATE_SECONDS,
)
from penstock.console.sessions import LogIn

__all__ = ["Collector", "Point", "State"]

_PAUSE_SECONDS: Final = 2.0
"""Before the broker is asked again, if it does not answer or is too busy."""
_VISITORS_MAX: Final = 20
"""Log-ins that are kept to measure with."""
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOTHING: Final[Mapping[str, object]] = {}
_POINTS_MAX: Final = int(HISTORY_SECONDS / MEASURE_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """Rates at one moment. Rates are per second, durations in milliseconds."""

    time: float
    """Seconds since the epoch."""
    messages_in: Mapping[str, float]
    messages_out: Mapping[str, float]
    bytes_in: float
    bytes_out: float
    clients: int
    sync_ms: float | None
    """Mean duration of a sync; None if there was none."""
    answer_ms: float
    """How long the broker took to answer, besides measuring."""
    lag: Mapping[str, int]
    """Lag of the consumer groups that lag most."""
    dead: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Dead letters of the consumer groups that have most."""


@dataclasses.dataclass(slots=True)
class State:
    """The last answers of the broker, empty before the first."""

    rates: dict[str, Any] = dataclasses.field(default_factory=dict)
    log: dict[str, Any] = dataclasses.field(default_factory=dict)
    limits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    refusals: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    away_since: float | None = None
    """When the broker stopped to answer, in seconds since the epoch; None if it answers."""
    refused: str | None = None
    """Why the broker does not tell its rates to the console; None if it does."""


class _Source:
    """Credentials to measure with, and which paths the broker refused them."""

    def __init__(
        self, api: BrokerApi, *, ends: float = float("inf"), refused_seconds: float
    ) -> None:
        """Use `api` until the time `ends`; a refusal counts for `refused_seconds`."""
        self.api = api
        self.ends = ends
        self._refused_seconds = refused_seconds
        self._again: dict[str, float] = {}

    def may_ask(self, path: str, now: float) -> bool:
        """Return whether a path was not refused lately."""
        return max(self._again.get("", 0.0), self._again.get(path, 0.0)) <= now

    def refused(self, path: str, status: int, now: float) -> None:
        """Do not ask for a path again for a while, or for any path if the log-in failed."""
        self._again["" if status == _UNAUTHORIZED else path] = now + self._refused_seconds


class Collector:
    """Measures as long as it runs, with the console's credentials or those of a log-in.

    The broker records each refusal, so credentials that were refused are not used again at once.
    """

    def __init__(
        self,
        api: BrokerApi,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # Without credentials a second attempt is left to visitors, who are asked for theirs.
        seconds = REFUSED_SECONDS if api.has_credentials else float("inf")
        self._own = _Source(api, refused_seconds=seconds)
        self._visitors: dict[BrokerApi, _Source] = {}
        self._adopted = asyncio.Event()
        self._clock = clock
        self._monotonic = monotonic
        self.points: deque[Point] = deque(maxlen=_POINTS_MAX)
        self.state = State()

    def adopt(self, login: LogIn) -> None:
        """Measure with the credentials of a log-in too, if the console's own do not suffice."""
        api = login.api
        if api in self._visitors or api.is_closed:
            return
        self._visitors[api] = _Source(api, ends=login.ends, refused_seconds=REFUSED_SECONDS)
        while len(self._visitors) > _VISITORS_MAX:
            del self._visitors[next(iter(self._visitors))]
        self._adopted.set()

    async def run(self) -> None:
        """Measure until cancelled."""
        state_at = 0.0
        while True:
            began = time.monotonic()
            self._adopted.clear()
            try:
                await self._measure()
                if began >= state_at:
                    state_at = began + STATE_SECONDS
                    await self._read_state()
            except ApiRefused as error:
                self.state.away_since = None
                self.state.refused = str(error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._adopted.wait(), _PAUSE_SECONDS)
            except BrokerAway:
                if self.state.away_since is None:
                    self.state.away_since = self._clock()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _measure(self) -> None:
        began = time.monotonic()
        rates = await self._get("/api/rates", {"seconds": MEASURE_SECONDS, "topics": 20})
        taken = time.monotonic() - began - rates["seconds"]
        if not self.state.rates:
            taken = 0.0  # the broker loads its HTTP libraries at the first request
        self.state.rates = rates
        self.state.away_since = self.state.refused = None
        self.points.append(point_of(rates, at=self._clock(), answer_ms=max(taken, 0.0) * 1000))

    async def _read_state(self) -> None:
        self.state.log = await self._get_allowed("/api/log")
        self.state.limits = (await self._get_allowed("/api/limits")).get("limits", [])
        self.state.refusals = (await self._get_allowed("/api/refusals")).get("refusals", [])

    async def _get_allowed(self, path: str) -> dict[str, Any]:
        """Return the answer to a GET, empty if no credentials have the right; raise BrokerAway."""
        try:
            return await self._get(path)
        except ApiRefused:
            return {}

    async def _get(self, path: str, query: Mapping[str, object] = _NOTHING) -> dict[str, Any]:
        """Return the answer to a GET with the first credentials that have the right.

        Raise ApiRefused if none has, BrokerAway if the broker does not answer.
        """
        refusal = ApiRefused(_FORBIDDEN, "not-allowed", self.state.refused or "no credentials")
        now = self._monotonic()
        for source in list(self._visitors.values()):
            if source.api.is_closed or source.ends <= now:
                del self._visitors[source.api]
        for source in (self._own, *reversed(list(self._visitors.values()))):
            if not source.may_ask(path, now):
                continue
            try:
                return await source.api.get(path, query)
            except ApiRefused as error:
                refusal = error
                if error.status not in (_UNAUTHORIZED, _FORBIDDEN):
                    break
                source.refused(path, error.status, self._monotonic())
        raise refusal


def point_of(rates: Mapping[str, Any], *, at: float, answer_ms: float) -> Point:
    """Return the point of an answer of `/api/rates`."""
    protocols = rates["protocols"]
    return Point(
        time=at,
        messages_in={each["protocol"]: each["received_messages"] for each in protocols},
        messages_out={each["protocol"]: each["sent_messages"] for each in protocols},
        bytes_in=sum(each["received_bytes"] for each in protocols),
        bytes_out=sum(each["sent_bytes"] for each in protocols),
        clients=rates["clients"],
        sync_ms=1000 * rates["sync_seconds"] / rates["syncs"] if rates["syncs"] else None,
        answer_ms=answer_ms,
        lag=_highest(rates["groups"], "lag"),
        dead=_highest(rates["groups"], "dead"),
    )


def _highest(groups: Sequence[Mapping[str, Any]], figure: str) -> dict[str, int]:
    """Return a figure of the groups where it is highest, by their name."""
    found = sorted(groups, key=lambda group: group[figure], reverse=True)
    return {each["name"]: each[figure] for each in found[:GROUPS_CHARTED_MAX]}
