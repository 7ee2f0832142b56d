"""Statistics of data files come from their Parquet footers, as far as those have any."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline.data_files import describe
from penstock.pipeline.delta_log import DeltaLog

TABLE = pa.table({"offset": pa.array([3, None, 5], pa.int64()), "value": [b"x", b"y", b"z"]})


@pytest.mark.parametrize("statistics", [True, False])
def test_a_file_without_statistics_is_described_without_them(
    tmp_path: Path, *, statistics: bool
) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", write_statistics=statistics)
    found = describe(tmp_path, "a.parquet")
    assert found.rows == 3
    assert found.size == (tmp_path / "a.parquet").stat().st_size
    assert found.low.get("offset") == (3 if statistics else None)
    assert found.high.get("offset") == (5 if statistics else None)


def test_the_log_of_a_table_gives_back_the_files_it_was_given(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.create(TABLE.schema, partition_by=())
    pq.write_table(TABLE, tmp_path / "a.parquet")
    given = describe(tmp_path, "a.parquet")
    log.commit(add=[given], transactions={"stream": 7})
    reopened = DeltaLog(tmp_path)
    assert reopened.transaction_version("stream") == 7
    (found,) = reopened.files()
    assert (found.path, found.size, found.rows, found.day) == ("a.parquet", given.size, 3, None)
    assert (found.low["offset"], found.high["offset"]) == (3, 5)
    reopened.commit(remove=[found])
    assert reopened.files() == []
