"""Turns of HTTP requests: how many begin in one turn of the event loop."""

import asyncio
from collections import deque

from penstock.limits import HTTP_REQUESTS_PER_TURN_MAX

__all__ = ["RequestTurns"]


class RequestTurns:
    """Lets a few requests begin in each turn of the event loop; others wait in order."""

    def __init__(self, per_turn_max: int = HTTP_REQUESTS_PER_TURN_MAX) -> None:
        self._per_turn_max = per_turn_max
        self._left = per_turn_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def wait(self) -> None:
        """Wait until a request may begin."""
        loop = asyncio.get_running_loop()
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._begin_turn, loop)
        if self._left:
            self._left -= 1
            return
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append(place)
        await place

    def _begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = self._per_turn_max
        while self._waiting and self._left:
            place = self._waiting.popleft()
            if not place.done():  # the request was not cancelled
                place.set_result(None)
                self._left -= 1
        self._scheduled = self._left < self._per_turn_max
        if self._scheduled:
            loop.call_soon(self._begin_turn, loop)
