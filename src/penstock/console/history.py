"""The last 15 minutes of a broker, read from its API and kept in this process."""

import asyncio
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
    STATE_SECONDS,
)

__all__ = ["Collector", "Point", "State"]

_PAUSE_SECONDS: Final = 2.0
"""Before the broker is asked again, if it does not answer or refuses."""
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


class Collector:
    """Measures as long as it runs, with the console's credentials or those of a log-in."""

    def __init__(self, api: BrokerApi, *, clock: Callable[[], float] = time.time) -> None:
        self._apis = [api]
        self._clock = clock
        self.points: deque[Point] = deque(maxlen=_POINTS_MAX)
        self.state = State()

    def adopt(self, api: BrokerApi) -> None:
        """Measure with the credentials of a log-in, if the console's own do not suffice."""
        if self.state.refused is not None:
            self._apis = [self._apis[0], api]

    async def run(self) -> None:
        """Measure until cancelled."""
        state_at = 0.0
        while True:
            began = time.monotonic()
            try:
                await self._measure(self._apis[-1])
                if began >= state_at:
                    state_at = began + STATE_SECONDS
                    await self._read_state(self._apis[-1])
            except ApiRefused as error:
                self.state.away_since = None
                self.state.refused = str(error)
                del self._apis[1:]
                await asyncio.sleep(_PAUSE_SECONDS)
            except BrokerAway:
                if self.state.away_since is None:
                    self.state.away_since = self._clock()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _measure(self, api: BrokerApi) -> None:
        began = time.monotonic()
        rates = await api.get("/api/rates", {"seconds": MEASURE_SECONDS, "topics": 20})
        taken = time.monotonic() - began - rates["seconds"]
        if not self.state.rates:
            taken = 0.0  # the broker loads its HTTP libraries at the first request
        self.state.rates = rates
        self.state.away_since = self.state.refused = None
        self.points.append(point_of(rates, at=self._clock(), answer_ms=max(taken, 0.0) * 1000))

    async def _read_state(self, api: BrokerApi) -> None:
        self.state.log = await api.get("/api/log")
        self.state.limits = (await api.get("/api/limits"))["limits"]
        self.state.refusals = (await api.get("/api/refusals"))["refusals"]


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
