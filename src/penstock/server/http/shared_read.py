"""A read that takes long, made once for all requests that wait for it."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["SharedRead"]

Result = TypeVar("Result")


class SharedRead(Generic[Result]):
    """Runs a read in a thread: one at a time, however many requests ask for it.

    A request that comes while a read runs waits for the next one, so each gets what was there when
    it came, or later.
    """

    def __init__(self) -> None:
        self._running: asyncio.Task[Result] | None = None
        self._next: asyncio.Task[Result] | None = None

    async def get(self, read: Callable[[], Result]) -> Result:
        """Return the result of `read`, which all callers of this object share; raise its error."""
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
