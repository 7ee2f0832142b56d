"""Counters of a stage: steps with rows count, with their time; others change nothing."""

import time
from typing import Any

import pytest

from penstock.pipeline.progress import Progress


def test_a_step_is_counted_with_its_rows_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress()
    seen: list[tuple[Any, ...]] = []
    for rows, seconds in ((10, 2.0), (0, 5.0), (30, 3.0)):
        with progress.step("silver.temps") as stage:
            stage.batch_rows = rows
            now[0] += seconds
        seen.append((stage.rows, stage.batches, stage.batch_ms, stage.rows_per_second))
    assert seen == [(10, 1, 2000.0, 5.0), (10, 1, 2000.0, 5.0), (40, 2, 3000.0, 10.0)]
    assert progress.values() == {"silver.temps": stage}
