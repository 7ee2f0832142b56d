"""Statistics of data files come from their Parquet footers, as far as those have any."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline.data_files import describe

TABLE = pa.table({"offset": pa.array([3, None, 5], pa.int64()), "value": [b"x", b"y", b"z"]})


@pytest.mark.parametrize("statistics", [True, False])
def test_a_file_without_statistics_is_described_without_them(
    tmp_path: Path, *, statistics: bool
) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", write_statistics=statistics)
    found = describe(tmp_path, "a.parquet", day=None)
    assert found.rows == 3
    assert found.size == (tmp_path / "a.parquet").stat().st_size
    assert found.low.get("offset") == (3 if statistics else None)
    assert found.high.get("offset") == (5 if statistics else None)
