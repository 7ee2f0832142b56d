"""What each stage did last: rows, time, how far it is behind."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

__all__ = ["Progress", "StageProgress"]


class StageProgress(Struct):
    """Numbers of one stage; `lag` is in messages of its input, `batch_ms` of its last step."""

    rows: int = 0
    batches: int = 0
    dead_letters: int = 0
    batch_rows: int = 0
    batch_ms: float = 0.0
    rows_per_second: float = 0.0
    lag: int = 0
    error: str = ""


class Progress:
    """The numbers of all stages; any thread may set and read them."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._stages: dict[str, StageProgress] = {}
        self.started = time.time()

    def stage(self, name: str) -> StageProgress:
        """Return the numbers of a stage."""
        with self._turn:
            return self._stages.setdefault(name, StageProgress())

    @contextmanager
    def step(self, name: str) -> Iterator[StageProgress]:
        """Measure a step of a stage, which sets `batch_rows`."""
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
        """Return the numbers of all stages that have any, in the order of their start."""
        with self._turn:
            return dict(self._stages)

    def status(self) -> dict[str, Any]:
        """Return all as it is kept for `status`."""
        return {"started": self.started, "updated": time.time(), "stages": self.values()}
