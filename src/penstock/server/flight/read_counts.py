"""Counters of Flight reads, for metrics."""

import threading

__all__ = ["ReadCounts"]


class ReadCounts:
    """Totals since the start. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ranges = 0
        self.rows = 0
        self.size = 0
        """Bytes of Arrow buffers."""

    def began(self) -> None:
        """Count a range."""
        with self._lock:
            self.ranges += 1

    def sent(self, rows: int, size: int) -> None:
        """Count a batch."""
        with self._lock:
            self.rows += rows
            self.size += size
