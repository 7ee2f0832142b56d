"""What Spark gets is in batches of a good size, with every row once and in order."""

import pyarrow as pa
import pytest

from penstock.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS
from penstock.ports.selection import Selection
from penstock.spark.arrow_batches import to_spark_batches

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])


def batches(*sizes: tuple[int, int]) -> list[pa.RecordBatch]:
    """Batches of so many rows with values of so many bytes."""
    made, first = [], 0
    for rows, size in sizes:
        values = pa.array([b"v" * size] * rows, pa.binary())
        numbers = pa.array(range(first, first + rows), pa.int64())
        made.append(pa.RecordBatch.from_arrays([values, numbers], schema=SCHEMA))
        first += rows
    return made


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([(10, 10)] * 30, 1),
        ([(20_000, 10)] * 5, 3),
        ([(SPARK_BATCH_ROWS, 1), (1, 1)], 2),
        ([(40_000, 250)], 3),
        ([(3, SPARK_BATCH_BYTES)], 3),
        ([(1, 3 * SPARK_BATCH_BYTES), (10, 10)], 2),
        ([(10, 10), (40_000, 250), (10, 10)], 5),
        ([(0, 1), (1, 0), (0, 1)], 1),
    ],
)
def test_small_batches_come_together_and_large_ones_are_cut(
    sizes: list[tuple[int, int]], count: int
) -> None:
    given = batches(*sizes)
    found = list(to_spark_batches(given, SCHEMA, Selection()))
    assert len(found) == count
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(given))
    assert all(len(each) == 1 or each.nbytes <= SPARK_BATCH_BYTES + 64 for each in found)


def test_without_columns_rows_are_counted() -> None:
    given = batches((3, 1), (4, 1))
    assert sum(map(len, to_spark_batches(given, pa.schema([]), Selection()))) == 7
