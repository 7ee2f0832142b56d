"""Rows of an epoch in the log are compared with rows that were staged again."""

from collections import Counter

import pyarrow as pa
import pytest

from penstock.flight.errors import EpochDiffers, StagingFull
from penstock.server.flight import logged_rows
from penstock.server.flight.logged_rows import LoggedRows
from penstock.server.flight.rows import RowCheck
from penstock.server.flight.shared_epochs import skipping
from tests.support.flight import rows


def staged(*values: bytes, topic: str = "t", key: bytes | None = None) -> pa.RecordBatch:
    headers = [[{"key": "k", "value": value}] for value in values]
    made = rows(values, topic=topic, key=[key] * len(values), headers=headers)
    return RowCheck(lambda _: None).rows(made)


def logged(*batches: pa.RecordBatch) -> LoggedRows:
    return LoggedRows(batches, writer="w", epoch=3)


def left(found: LoggedRows, *batches: pa.RecordBatch) -> Counter[bytes]:
    found.check(batches)
    return Counter(
        value for rows in batches for value in found.without(rows).column("value").to_pylist()
    )


def test_rows_are_left_out_in_any_order_as_often_as_they_are_in_the_log() -> None:
    found = logged(staged(b"a", b"b"), staged(b"a"))
    assert found.count == 3
    assert left(found, staged(b"c", b"a"), staged(b"b", b"a", b"a")) == {b"c": 1, b"a": 1}


@pytest.mark.parametrize(
    "others",
    [
        staged(b"a"),
        staged(b"a", b"x"),
        staged(b"a", b"b", topic="other"),
        staged(b"a", b"b", key=b""),
    ],
)
def test_rows_in_the_log_that_are_not_staged_are_an_error(others: pa.RecordBatch) -> None:
    with pytest.raises(EpochDiffers, match="rows of epoch 3 of writer 'w' that are not staged now"):
        logged(staged(b"a", b"b")).check([others])


def test_the_rows_to_compare_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_rows, "SINK_COMPARED_ROWS_MAX", 2)
    assert logged(staged(b"a", b"b")).count == 2
    with pytest.raises(StagingFull, match="2 rows to compare"):
        logged(staged(b"a", b"b"), staged(b"c"))


def test_the_first_rows_are_skipped_over_several_batches() -> None:
    rest = skipping(3)
    found = [rest(each).column("value").to_pylist() for each in (staged(b"a", b"b"),) * 3]
    assert found == [[], [b"b"], [b"a", b"b"]]
