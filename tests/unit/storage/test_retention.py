"""Retention: the oldest closed segments go, the last stays, and the horizon moves first."""

import pytest

from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.recover.recovery import Segment, recover
from penstock.storage.arrow.write.retention import expired, remove_segments
from tests.support.log_rows import LOG_ID
from tests.support.recorded_files import RecordedFiles
from tests.unit.storage.sample import FOLDER, base_of, sample

SEGMENTS = [Segment(10 * number, 10 * number + 10, 100, 1000 * number) for number in range(5)]


@pytest.mark.parametrize(
    ("age", "size", "active", "count"),
    [
        (None, None, 0, 0),
        (None, 500, 0, 0),
        (None, 499, 0, 1),
        (None, 500, 1, 1),
        (None, 250, 0, 3),
        (None, 0, 0, 4),  # never the last
        (5000, None, 0, 0),
        (3000, None, 0, 2),  # latest messages at 0 and 1000 are older than 5000 - 3000
        (0, None, 0, 4),
        (3000, 250, 0, 3),  # whichever asks for more
    ],
)
def test_what_goes(age: int | None, size: int | None, active: int, count: int) -> None:
    found = expired(SEGMENTS, active_bytes=active, now_us=5000, age_us_max=age, bytes_max=size)
    assert found == count


def test_an_old_segment_behind_a_young_one_stays() -> None:
    segments = [SEGMENTS[4], SEGMENTS[0], SEGMENTS[1]]
    assert expired(segments, active_bytes=0, now_us=5000, age_us_max=2000) == 0


def test_nothing_goes_where_nothing_is() -> None:
    assert expired([], active_bytes=10, now_us=0, age_us_max=0, bytes_max=0) == 0


def test_removal_may_be_cut_short_anywhere() -> None:
    state, _ = sample(segments=4)
    files = RecordedFiles(state)
    recover(files, FOLDER)
    save_state(files, FOLDER, LogState(LOG_ID, 0, end=base_of(4), horizon=base_of(2)))
    before = files.state
    start = len(files.operations)
    remove_segments(files, FOLDER, [base_of(0), base_of(1)])
    removed = [each.path for each in files.operations[start:] if each.kind == "remove"]
    assert len(removed) == 4  # two segments, two indexes
    # Names that were removed may be gone in any order.
    for mask in range(1 << len(removed)):
        gone = {path for number, path in enumerate(removed) if mask >> number & 1}
        left = RecordedFiles({path: data for path, data in before.items() if path not in gone})
        recovered = recover(left, FOLDER)
        assert recovered.damage == []
        assert (recovered.horizon, recovered.next_offset) == (base_of(2), base_of(4))
        assert left.state == files.state
