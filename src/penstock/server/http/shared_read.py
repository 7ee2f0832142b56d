"""Shares the result of a slow read between all requests that wait for it."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["SharedRead"]

Result = TypeVar("Result")


class SharedRead(Generic[Result]):
    """Runs a read in a thread, one at a time for all requests.

    A request that arrives while a read runs waits for the next read, so no request gets a result
    that is older than the request.
    """

    def __init__(self) -> None:
        self._running: asyncio.Task[Result] | None = None
        self._next: asyncio.Task[Result] | None = None

    async def get(self, read: Callable[[], Result]) -> Result:
        """Return the result of `read`, shared with other callers; raise its error."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._begin(self._running, read))
            self._next.add_done_callback(_retrieve)
        return await asyncio.shield(self._next)

    async def _begin(
        self, before: "asyncio.Task[Result] | None", read: Callable[[], Result]
    ) -> Result:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await asyncio.to_thread(read)


def _retrieve(task: "asyncio.Task[Result]") -> None:
    """Take the error of a read whose requests have all ended, or asyncio logs it."""
    if not task.cancelled():
        task.exception()
