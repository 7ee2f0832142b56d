"""Streams of deliveries and notifications, each with a bounded queue."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Generic, Self, TypeVar

from penstock.client.errors import ClientClosed, TimedOut
from penstock.closeable import AsyncCloseable

__all__ = ["Queue", "Stream"]

Item = TypeVar("Item")


class Queue(Generic[Item]):
    """A queue between the connection and a caller.

    `put` never blocks: the connection must check `full` and pause reading. `low` is called when a
    full queue is half empty again.
    """

    def __init__(self, *, items_max: int, low: Callable[["Queue[Item]"], None]) -> None:
        self.items_max = items_max
        self.full = False
        self.ended = False
        self._items: deque[Item] = deque()
        self._error: Exception | None = None
        self._low = low
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Append an item."""
        self._items.append(item)
        self._arrived.set()
        if len(self._items) >= self.items_max:
            self.full = True

    def end(self, error: Exception | None = None) -> None:
        """End the queue: after the last item, `get` raises `error` or StopAsyncIteration."""
        if not self.ended:
            self.ended = True
            self._error = error
            self._arrived.set()

    async def get(self) -> Item:
        """Wait for the next item and return it; see `end`."""
        await self._wait_for_item()
        item = self._items.popleft()
        self._taken()
        return item

    async def take(self) -> list[Item]:
        """Wait for at least one item and return all; see `end`."""
        await self._wait_for_item()
        items = list(self._items)
        self._items.clear()
        self._taken()
        return items

    async def _wait_for_item(self) -> None:
        while not self._items:
            if self.ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()

    def _taken(self) -> None:
        if self.full and len(self._items) <= self.items_max // 2:
            self.full = False
            self._low(self)


class Stream(AsyncCloseable, AsyncIterator[Item]):
    """An asynchronous iterator over the items of one subscription.

    It starts with `async with`, `await` or the first item. It survives reconnects and ends with
    `close` or with the client. It raises if the client gives up reconnecting or the subscription is
    refused. A stream without references is dropped.
    """

    def __init__(
        self,
        topic: str,
        queue: Queue[Item],
        *,
        begin: Callable[["Stream[Item]"], Awaitable[None]],
        finish: Callable[["Stream[Item]"], Awaitable[None]],
        drop: Callable[[Queue[Item]], object],
    ) -> None:
        self.topic = topic
        self.queue = queue
        self._begin = begin
        self._finish = finish
        self._begun = False
        self._beginning = asyncio.Lock()
        self._drop = drop

    async def get(self, timeout: float | None = None) -> Item:
        """Return the next item; raise TimedOut after `timeout` seconds, ClientClosed at the end."""
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except TimeoutError:
            raise TimedOut("get", timeout or 0) from None
        except StopAsyncIteration:
            raise ClientClosed from None

    async def take(self, timeout: float | None = None) -> list[Item]:
        """Return all queued items, at least one; raises as `get` does."""
        try:
            async with asyncio.timeout(timeout):
                await self
                return await self.queue.take()
        except TimeoutError:
            raise TimedOut("take", timeout or 0) from None
        except StopAsyncIteration:
            raise ClientClosed from None

    async def close(self) -> None:
        """End the stream; unsubscribe if the protocol supports it."""
        self.queue.end()
        if self._begun:
            await self._finish(self)

    def __await__(self) -> Generator[None, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if not self._begun:
            async with self._beginning:
                if not self._begun:
                    await self._begin(self)
                    self._begun = True
                    loop = asyncio.get_running_loop()
                    end = weakref.finalize(self, _drop_queue, loop, self._drop, self.queue)
                    end.atexit = False
        return self

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __anext__(self) -> Item:
        if not self._begun:
            await self._open()
        return await self.queue.get()


def _drop_queue(
    loop: asyncio.AbstractEventLoop, drop: Callable[[Queue[Item]], object], queue: Queue[Item]
) -> None:
    """Drop the queue of a garbage-collected stream; any thread may call this."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(drop, queue)
