"""A warehouse in a bucket: the same tables as in a folder, and no commit is lost or repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from penstock.pipeline.bronze import BRONZE_SCHEMA, BronzeWriter
from penstock.pipeline.bronze_ingest import DailyParquetFiles
from penstock.pipeline.errors import WarehouseInUse
from penstock.pipeline.tables import Table
from penstock.storage.object_store import ObjectStore
from tests.support.object_store import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]

SECONDS_MAX = 570


@pytest.mark.spark
def test_the_pipeline_runs_in_a_bucket(tmp_path: Path, bucket: str) -> None:
    command = [sys.executable, "-m", "tests.pipeline.bucket_story", str(tmp_path), bucket]
    done = subprocess.run(  # noqa: S603  (our own program)
        command, env=os.environ, timeout=SECONDS_MAX, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]


def written(store: ObjectStore, first: int, count: int) -> list[str]:
    """Write records of one log to a data file; return its path."""
    schema = pa.schema([field for field in BRONZE_SCHEMA if field.name != "day"])
    values: dict[str, list[object]] = {name: [None] * count for name in schema.names}
    values |= {
        "offset": list(range(first, first + count)),
        "partition": [0] * count,
        "message_id": [f"{1:012x}-0-{n}" for n in range(first, first + count)],
        "timestamp": [1_763_200_000_000_000 + n for n in range(count)],
    }
    columns = [pa.array(values[field.name]).cast(field.type) for field in schema]
    with DailyParquetFiles(store, schema) as files:
        files.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        return files.close()


def test_a_second_writer_is_noticed_and_adds_nothing(bucket: str) -> None:
    store = ObjectStore(f"{bucket}/warehouse/bronze")
    one, other = (BronzeWriter(Table(store, partition_by=("day",))) for _ in range(2))
    assert one.add_files(written(store, 0, 5)) == 5
    assert sum(other.offsets.values()) == 5
    assert one.add_files(written(store, 5, 5)) == 5
    with pytest.raises(WarehouseInUse):
        other.add_files(written(store, 5, 5))
    assert Table(store, partition_by=("day",)).rows() == 10


def test_of_two_commits_on_one_version_neither_replaces_the_other(bucket: str) -> None:
    url = f"{bucket}/table"
    schema = pa.schema([("number", pa.int64())])
    DeltaTable.create(url, schema=schema)
    one, other, third = (DeltaTable(url) for _ in range(3))

    def commit(table: DeltaTable, name: str) -> None:
        properties = CommitProperties(app_transactions=[Transaction(name, 1)])
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

    commit(one, "a")
    commit(other, "b")
    with pytest.raises(CommitFailedError):
        commit(third, "a")
    found = DeltaTable(url)
    assert found.version() == 2
    assert [found.transaction_version(name) for name in "ab"] == [1, 1]
