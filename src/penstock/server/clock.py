"""The system clock."""

import time

__all__ = ["SystemClock"]


class SystemClock:
    """See ports.Clock."""

    monotonic = staticmethod(time.monotonic)  # without a call of Python: each read asks for it

    def now_us(self) -> int:
        """See ports.Clock."""
        return time.time_ns() // 1000
