"""Base classes of objects that a `with` block closes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["AsyncCloseable", "Closeable"]


class Closeable(ABC):
    """An object that a `with` block closes."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncCloseable(ABC):
    """An object that an `async with` block closes."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
