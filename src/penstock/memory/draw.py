"""Memory drawn without a connection, by any thread."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.memory.purpose import Purpose
from penstock.memory.shares import Share

if TYPE_CHECKING:
    from penstock.memory.budget import MemoryBudget

__all__ = ["Draw"]


class Draw:
    """Memory drawn by a thread: a context manager that returns it at the end."""

    def __init__(self, budget: "MemoryBudget", purpose: Purpose, shares: tuple[Share, ...]) -> None:
        """Use `MemoryBudget.draw` instead."""
        self._budget = budget
        self.purpose = purpose
        self.shares = shares
        self.size = 0

    def resize(self, size: int) -> None:
        """Change the size; raise MemoryExhausted and change nothing if there is no room."""
        self._budget.resize(self, size)

    def release(self) -> None:
        """Return the memory; a second call does nothing."""
        self._budget.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
