"""Services and middleware that a client has registered."""

from collections.abc import Awaitable, Callable

from penstock.closeable import AsyncCloseable, Closeable

__all__ = ["Middleware", "NamedService", "Service"]


class Service(Closeable):
    """A served path; `close` or the end of its `with` block stops serving it."""

    def __init__(self, path: str, close: Callable[[], None]) -> None:
        self.path = path
        self._close = close

    def close(self) -> None:
        """Stop serving; requests to the path are answered with 404."""
        self._close()


class Middleware(AsyncCloseable):
    """A registered middleware; `close` or the end of its `async with` block unregisters it."""

    def __init__(self, name: str, close: Callable[[str], Awaitable[None]]) -> None:
        self.name = name
        self._close = close

    async def close(self) -> None:
        """Unregister the middleware."""
        await self._close(self.name)


class NamedService(AsyncCloseable):
    """A service that is registered by name; `close` or the end of its block ends it."""

    def __init__(self, path: str, close: Callable[[], Awaitable[None]]) -> None:
        self.path = path
        self._close = close

    async def close(self) -> None:
        """End the service; requests that were received before are answered."""
        await self._close()
