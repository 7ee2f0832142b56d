"""The memory that the process really takes, compared with the memory budget.

The budget counts buffers by their sizes. The process takes more: freed memory that allocators keep,
copies that exist for a moment, objects that are not counted. That overhead is measured and drawn
from the budget too, so that clients get less instead of the process taking more.
"""

import os
import threading
from collections.abc import Callable
from typing import Final

from penstock.limits import (
    MEMORY_OVERHEAD_SHARE_MAX,
    MEMORY_RELEASE_BYTES_MIN,
    MEMORY_RELEASE_SECONDS,
)
from penstock.memory import MemoryBudget, Purpose
from penstock.server.allocator import release_freed_memory

__all__ = ["ProcessMemory", "anonymous_bytes"]

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"


def anonymous_bytes() -> int:
    """Return the resident memory of the process without pages of files; 0 if it is not known."""
    try:
        with open(_STATM, "rb", buffering=0) as file:  # noqa: PTH123  # 20 times a second
            fields = file.read(256).split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


class ProcessMemory:
    """Draws the overhead of the process from a budget, and returns freed memory to the system.

    The thread of the event loop owns it; memory is returned by a thread of its own.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        *,
        resident: Callable[[], int] = anonymous_bytes,
        release: Callable[[], None] = release_freed_memory,
    ) -> None:
        self._budget = budget
        self._resident = resident
        self._release = release
        self._overhead_max = int(budget.bytes_max * MEMORY_OVERHEAD_SHARE_MAX)
        self._base: int | None = None
        self._lowest = 0  # resident since the last return
        self._released_at = float("-inf")
        self._releasing: threading.Thread | None = None
        self.releases = 0
        """How often freed memory was returned to the system."""

    @property
    def base_bytes(self) -> int:
        """Resident memory at the start."""
        return self._base or 0

    def start(self) -> None:
        """Take the memory of the process now as that of the process without clients.

        It has the topics of earlier runs already, which are drawn.
        """
        self._lowest = self._resident()
        self._base = self._lowest - self._budget.fixed(Purpose.NAMES)

    def tick(self, now: float) -> None:
        """Update the overhead; return freed memory if the process has grown. `now` is monotonic."""
        if self._base is None or not self._lowest:
            return
        resident = self._resident()
        budget = self._budget
        # Passwords are verified by other processes: what is kept for them is not in this one.
        drawn = budget.used - budget.fixed(Purpose.OVERHEAD)
        here = self._base + drawn - budget.fixed(Purpose.PASSWORDS)
        # The first block of each connection is there beside any overhead.
        most = min(self._overhead_max, budget.large_bytes_max - drawn)
        budget.level(Purpose.OVERHEAD, max(min(resident - here, most), 0))
        self._lowest = min(self._lowest, resident)
        if (
            resident - self._lowest >= MEMORY_RELEASE_BYTES_MIN
            and now - self._released_at >= MEMORY_RELEASE_SECONDS
            and (self._releasing is None or not self._releasing.is_alive())
        ):
            self._released_at = now
            self._releasing = threading.Thread(
                target=self._return, name="penstock-memory", daemon=True
            )
            self._releasing.start()

    def stop(self) -> None:
        """Wait until memory is returned."""
        if self._releasing is not None:
            self._releasing.join()

    def _return(self) -> None:
        self._release()
        self._lowest = self._resident()
        self.releases += 1
