"""The system clock."""

import time

__all__ = ["SystemClock"]


class SystemClock:
    """See ports.Clock."""

    monotonic = staticmethod(time.monotonic)  # called for each read: no Python frame around it

    def now_us(self) -> int:
        """See ports.Clock."""
        return time.time_ns() // 1000
