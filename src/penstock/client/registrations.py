"""Services and middleware that a client has registered."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

__all__ = ["Middleware", "Service"]


class Service:
    """A served path; `close` or the end of its `with` block stops serving it."""

    def __init__(self, path: str, close: Callable[[], None]) -> None:
        self.path = path
        self._close = close

    def close(self) -> None:
        """Stop serving; requests to the path are answered with 404."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Middleware:
    """A registered middleware; `close` or the end of its `async with` block unregisters it."""

    def __init__(self, name: str, close: Callable[[str], Awaitable[None]]) -> None:
        self.name = name
        self._close = close

    async def close(self) -> None:
        """Unregister the middleware."""
        await self._close(self.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
