"""Progress of the stages: rows, duration and lag."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

__all__ = ["Progress", "StageProgress"]


class StageProgress(Struct):
    """Counters of a stage; `batch_…` is of its last step.

    `lag` is the number of messages in the log that the table does not reflect yet.
    """

    rows: int = 0
    batches: int = 0
    dead_letters: int = 0
    batch_rows: int = 0
    batch_ms: float = 0.0
    rows_per_second: float = 0.0
    lag: int = 0
    error: str = ""


class Progress:
    """Counters of all stages; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, StageProgress] = {}
        self.started = time.time()

    def stage(self, name: str) -> StageProgress:
        """Return the counters of a stage."""
        with self._lock:
            return self._stages.setdefault(name, StageProgress())

    @contextmanager
    def step(self, name: str) -> Iterator[StageProgress]:
        """Measure a step of a stage; the step sets `batch_rows`."""
        stage = self.stage(name)
        stage.batch_rows = 0
        begun = time.monotonic()
        yield stage
        seconds = time.monotonic() - begun
        if stage.batch_rows:
            stage.rows += stage.batch_rows
            stage.batches += 1
            stage.batch_ms = seconds * 1000
            stage.rows_per_second = stage.batch_rows / seconds

    def values(self) -> dict[str, StageProgress]:
        """Return the counters of all stages that have started, in that order."""
        with self._lock:
            return dict(self._stages)

    def status(self) -> dict[str, Any]:
        """Return the contents of the status file."""
        return {"started": self.started, "updated": time.time(), "stages": self.values()}
