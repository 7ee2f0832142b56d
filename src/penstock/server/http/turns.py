"""Turns of HTTP requests: how many begin in one turn of the event loop, and what they use of it."""

import asyncio
from collections.abc import Awaitable, Generator
from functools import partial
from typing import Any

from penstock.core.slices import Slices
from penstock.core.turns import LoopTurn, Source
from penstock.limits import HTTP_REQUESTS_PER_TURN_MAX
from penstock.ports import Clock

__all__ = ["RequestTurns", "TimedWork"]


class RequestTurns:
    """Lets a few requests begin in each turn of the event loop.

    Others wait with the input of clients; the address that used the loop least comes first. While
    several principals use the loop, requests have the crowd's part of it, and one begins in a turn.
    """

    def __init__(
        self,
        turn: LoopTurn,
        slices: Slices,
        clock: Clock,
        per_turn_max: int = HTTP_REQUESTS_PER_TURN_MAX,
    ) -> None:
        self._turn = turn
        self._slices = slices
        self._clock = clock
        self._per_turn_max = per_turn_max
        self._begun = 0
        self._turn_open = False

    async def wait(self, source: Source) -> None:
        """Wait until a request of a source may begin."""
        if self._begin(source):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slices.later(partial(self._take, place, source), source)
        await place

    def _take(self, place: asyncio.Future[None], source: Source) -> None:
        if place.done():  # the request was cancelled
            return
        if self._begin(source):
            place.set_result(None)
        else:
            self._slices.later(partial(self._take, place, source), source)

    def _begin(self, source: Source) -> bool:
        """Count a request that begins now; return False if it has to wait."""
        if self._begun >= (1 if self._turn.is_shared else self._per_turn_max):
            return False
        if self._turn.wait_seconds(self._clock.monotonic(), source):
            return False
        if not self._turn_open:
            self._turn_open = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._begun += 1
        return True

    def _end_turn(self) -> None:
        self._begun = 0
        self._turn_open = False


class TimedWork:
    """Awaits work, and counts the time of the event loop that it takes as that of a source."""

    def __init__(self, work: Awaitable[None], turn: LoopTurn, source: Source, clock: Clock) -> None:
        self._work = work
        self._turn = turn
        self._source = source
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, None]:
        """Await the work."""
        steps = self._work.__await__()
        send = partial(next, steps)
        while True:
            started = self._clock.monotonic()
            try:
                awaited = send()
            except StopIteration:
                return
            finally:
                now = self._clock.monotonic()
                self._turn.count(self._source, now, now - started)
            try:
                result = yield awaited
            except BaseException as error:  # noqa: BLE001  (the work decides)
                send = partial(steps.throw, error)
            else:
                send = partial(steps.send, result)
