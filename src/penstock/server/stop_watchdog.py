"""The deadline of a stop: a thread that ends the process, whatever hangs."""

import os
import threading
from collections.abc import Callable

import structlog

__all__ = ["StopWatchdog"]

log = structlog.get_logger("penstock.run")


class StopWatchdog(threading.Thread):
    """Ends the process `seconds_max` after `start`, unless it has ended by then.

    The event loop, or the end of the interpreter, may wait for a thread that hangs in a file
    system. Everything acknowledged is in the log at that time: a start after it is like one after
    a crash. `stopped` returns whether all that is needed is done; then the exit code is 0, else 1.
    `kill` ends child processes, `flush` writes what waits for standard error.
    """

    def __init__(
        self,
        *,
        seconds_max: float,
        stopped: Callable[[], bool],
        kill: Callable[[], None],
        flush: Callable[[], None],
    ) -> None:
        super().__init__(name="penstock-stop-watchdog", daemon=True)
        self._seconds_max = seconds_max
        self._stopped = stopped
        self._kill = kill
        self._flush = flush

    def run(self) -> None:
        """Wait, then end the process."""
        threading.Event().wait(self._seconds_max)
        code = 0 if self._stopped() else 1
        try:
            if code:
                log.warning("stop cut off", seconds_max=self._seconds_max)
            self._kill()
            self._flush()
        finally:
            os._exit(code)
