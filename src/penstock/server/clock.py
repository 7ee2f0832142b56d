"""The system clock."""

import time

__all__ = ["SystemClock"]


class SystemClock:
    """See ports.Clock."""

    def now_us(self) -> int:
        """See ports.Clock."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """See ports.Clock."""
        return time.monotonic()
