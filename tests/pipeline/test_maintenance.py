"""Maintenance: few files and commits, whatever the traffic; a check finds damage."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.limits import PIPELINE_COMMIT_ROWS
from penstock.pipeline.bronze import BRONZE_SCHEMA, BronzeWriter, skip_slices, table_offsets
from penstock.pipeline.bronze_ingest import DailyParquetFiles, IngestReader
from penstock.pipeline.config import (
    BronzeConfig,
    FieldConfig,
    PipelineConfig,
    SilverConfig,
    WarehouseConfig,
)
from penstock.pipeline.data_files import DataFile, describe
from penstock.pipeline.maintenance import Maintenance, check_table
from penstock.pipeline.offsets import Slice, Stream
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.options import read_options
from tests.support.commands import Commands
from tests.support.pipeline_records import arrow, record
from tests.support.written_log import WrittenLog

SECONDS = int(os.environ.get("PENSTOCK_TABLES_SECONDS", "180"))
"""Simulated time; 3600 for the whole hour, which takes some minutes."""
MESSAGES_A_SECOND = 20
FILES_MAX = 200
COMMITS_MAX = 2000
OURS = Stream("01234567-89ab", 0)
SCHEMA = SilverConfig(name="temps", topics=("#",), field=(FieldConfig(name="number"),))


def written(folder: Path, start: int, count: int) -> list[str]:
    """Write records from an offset on, all of one day, and return the paths of the files."""
    moment = record(60)["timestamp"]
    rows = [record(n, b"value %d" % n, timestamp=moment) for n in range(start, start + count)]
    schema = BRONZE_SCHEMA.remove(len(BRONZE_SCHEMA) - 1)  # without day
    with DailyParquetFiles(folder, schema) as files:
        for batch in arrow(rows).cast(schema).to_batches():
            files.write(batch)
        return files.close()


class Traffic:
    """Tables as the pipeline writes them, by a clock of its own."""

    def __init__(self, warehouse: Warehouse, config: PipelineConfig) -> None:
        self._config = config
        self._bronze = BronzeWriter(warehouse.bronze())
        self._folder = warehouse.bronze().folder
        self._silver = warehouse.silver("temps")
        self._gold = [warehouse.gold(name) for name in ("traffic", "sessions")]
        for table in (self._silver, *self._gold):
            table.evolve_arrow_schema(BRONZE_SCHEMA)
        self._offset = 0
        self._gold_files: dict[str, list[DataFile]] = {}

    def second(self, number: int) -> None:
        """Do what is due in a second."""
        if number % self._config.bronze_seconds == 0:
            count = int(MESSAGES_A_SECOND * self._config.bronze_seconds)
            self._bronze.add_files(written(self._folder, self._offset, count))
            self._add(self._silver, count)
            self._offset += count
        if number % self._config.gold.seconds == 0:
            for table in self._gold:
                old = self._gold_files.get(table.name, [])
                self._gold_files[table.name] = self._add(table, 5, remove=old)

    def _add(
        self, table: Table, count: int, remove: list[DataFile] | None = None
    ) -> list[DataFile]:
        table.exists()
        paths = written(table.folder, self._offset, count)
        files = [describe(table.folder, path) for path in paths]
        table.commit(add=files, remove=remove or (), transactions={OURS.name: self._offset})
        return files


def commits(warehouse: Warehouse) -> Iterator[Path]:
    return warehouse.folder.rglob("_delta_log/*.json")


def data_files(warehouse: Warehouse) -> list[Path]:
    return [path for path in warehouse.folder.rglob("*.parquet") if "_delta_log" not in str(path)]


@pytest.fixture
def short_history(tmp_path: Path) -> Iterator[Warehouse]:
    config = WarehouseConfig(folder=str(tmp_path / "warehouse"), history_seconds=60)
    with Warehouse(config) as found:
        yield found


def test_an_hour_of_few_messages_leaves_few_files_and_commits(short_history: Warehouse) -> None:
    warehouse = short_history
    config = PipelineConfig(silver=(SCHEMA,), warehouse=warehouse.config)
    traffic = Traffic(warehouse, config)
    maintenance = Maintenance(warehouse)
    begun = time.time() - SECONDS
    dated: set[Path] = set()
    most = [0, 0]
    for second in range(SECONDS):
        traffic.second(second)
        if second % config.warehouse.maintain_seconds == 0:
            tables = warehouse.tables().values()
            for table in tables:
                maintenance.compact(table)
            now = begun + second
            for path in set(commits(warehouse)) - dated:
                os.utime(path, (now, now))
                dated.add(path)
            most[0] = max(most[0], len(data_files(warehouse)))
            most[1] = max(most[1], len(list(commits(warehouse))))
            for table in tables:
                maintenance.delete_history(table, now=now)
    print(f"at most {most[0]} files and {most[1]} commits of {len(dated)}")  # noqa: T201
    assert most[0] < FILES_MAX
    assert most[1] < COMMITS_MAX
    rows = (SECONDS // 2) * int(MESSAGES_A_SECOND * config.bronze_seconds)
    for name in ("bronze", "temps"):
        table = warehouse.tables()[name]
        assert len(pa.table(DeltaTable(str(table.folder)).to_pyarrow_table())) == rows
        assert check_table(table).problems == []
    assert table_offsets(warehouse.bronze(), [OURS]) == {OURS: rows}


def test_a_reader_of_an_older_version_keeps_its_files_until_the_history_ends(
    warehouse: Warehouse,
) -> None:
    writer = BronzeWriter(warehouse.bronze())
    folder = warehouse.bronze().folder
    for number in range(10):
        writer.add_files(written(folder, 10 * number, 10))
    older = DeltaTable(str(folder))
    maintenance = Maintenance(warehouse)
    table = warehouse.tables()["bronze"]
    assert maintenance.compact(table) == 9
    assert maintenance.delete_history(table) == 0
    assert len(pa.table(older.to_pyarrow_table())) == 100
    later = time.time() + warehouse.config.history_seconds
    assert maintenance.delete_history(table, now=later + 1) == 10
    assert len(pa.table(DeltaTable(str(folder)).to_pyarrow_table())) == 100
    # The writer has a snapshot from before the compaction.
    writer.add_files(written(folder, 100, 10))
    assert check_table(warehouse.tables()["bronze"]) == (110, 2, 0, [])


def test_commits_are_deleted_only_below_a_checkpoint_and_no_row_is_lost(
    warehouse: Warehouse,
) -> None:
    writer = BronzeWriter(warehouse.bronze())
    folder = warehouse.bronze().folder
    for number in range(30):
        writer.add_files(written(folder, 10 * number, 10))
    table = warehouse.tables()["bronze"]
    version = table.log.refresh()
    assert table.log.delete_commits(before=time.time() + 60) == version
    assert [path.stem for path in commits(warehouse)] == [f"{version:020}"]
    writer.add_files(written(folder, 300, 10))
    assert BronzeWriter(warehouse.bronze()).offsets == {OURS: 310}
    assert check_table(warehouse.tables()["bronze"]) == (310, 31, 0, [])


@pytest.mark.parametrize("refreshes", [False, True])
def test_a_snapshot_is_read_after_its_commits_were_deleted(
    warehouse: Warehouse, *, refreshes: bool
) -> None:
    writer = warehouse.bronze().log
    writer.create(BRONZE_SCHEMA, partition_by=())
    writer.commit(transactions={"quiet": 7})
    for number in range(30):
        writer.commit(transactions={"busy": number})
    reader = warehouse.bronze().log
    version = reader.refresh()
    assert warehouse.bronze().log.delete_commits(before=time.time() + 60) == version
    if refreshes:
        assert reader.refresh() == version
    for log in (reader, writer):
        assert log.transaction_version("busy") == 29
        assert log.transaction_version("quiet") == 7
        assert log.transaction_version("none") is None


def test_slices_without_rows_are_committed_when_they_are_many(warehouse: Warehouse) -> None:
    table = warehouse.silver("quiet")
    table.evolve_arrow_schema(BRONZE_SCHEMA)
    other = warehouse.silver("quiet")
    for end in (10, PIPELINE_COMMIT_ROWS - 1):
        skip_slices(table, [Slice(OURS, 0, end)])
        assert table_offsets(other, [OURS]) == {OURS: end}
        assert other.log.refresh() == 0
    skip_slices(table, [Slice(OURS, 0, PIPELINE_COMMIT_ROWS)])
    assert other.log.refresh() == 1
    assert other.log.transaction_version(OURS.name) == PIPELINE_COMMIT_ROWS


def test_a_batch_waits_for_its_interval_or_for_enough_rows(tmp_path: Path) -> None:
    with WrittenLog(tmp_path / "data") as log:
        source = {"path": str(tmp_path / "data"), "startingOffsets": "earliest"}
        options = read_options(source, streaming=True)
        log.put_many(1)
        reader = IngestReader(options, tmp_path, seconds=3600)
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadAllAvailable())
        assert first != start  # the first message does not wait
        log.put_many(1, rows=4)
        assert reader.latestOffset(first, ReadAllAvailable()) == first
        assert reader.latestOffset(first, ReadMaxRows(5)) == first
        assert reader.latestOffset(first, ReadMaxRows(4)) != first
        at_once = IngestReader(options, tmp_path)
        second = at_once.latestOffset(first, ReadAllAvailable())
        assert second != first
        log.put_many(1)
        assert at_once.latestOffset(second, ReadAllAvailable()) != second


CONFIG = '[source]\npath = "data"\n'


def test_the_commands_compact_vacuum_and_check(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    config = ["--config", str(tmp_path / "pipeline.toml")]
    with Warehouse(WarehouseConfig(folder=str(tmp_path / "warehouse"))) as w:
        writer = BronzeWriter(w.bronze())
        folder = w.bronze().folder
        for number in range(3):
            writer.add_files(written(folder, 10 * number, 10))
        (abandoned,) = written(folder, 0, 10)
        line = commands.run("pipeline", "compact", *config).error_line()
        assert line.startswith("another pipeline writes ")

    def run(name: str, code: int = 0) -> str:
        done = commands.run("pipeline", name, *config)
        assert done.code == code, done
        return done.out

    assert run("check") == "bronze: 30 rows in 3 files, 1 uncommitted file, no problem\n"
    assert run("compact") == "bronze: 3 files, now 1\n"
    assert run("vacuum") == "bronze: 0 files deleted\n"
    old = time.time() - 200 * 3600
    for path in [*folder.glob("_delta_log/*.json"), folder / abandoned]:
        os.utime(path, (old, old))
    assert run("vacuum") == "bronze: 4 files deleted\n"
    assert run("check") == "bronze: 30 rows in 1 file, no problem\n"
    line = commands.run("pipeline", "check", "x", *config).error_line()
    assert line == "there is no table 'x'; there are: bronze"

    (data,) = folder.glob("day=*/*.parquet")
    contents = data.read_bytes()
    for damaged, problem in (
        (contents[:-1], f"has {len(contents) - 1} bytes, not {len(contents)}"),
        (contents[:-4] + b"XXXX", "cannot be read: "),
        (contents[:50] + bytes(40) + contents[90:], "cannot be read: "),
    ):
        data.write_bytes(damaged)
        out = run("check", code=1)
        assert out.splitlines()[0] == "bronze: 30 rows in 1 file, damaged"
        assert problem in out
    data.unlink()
    assert run("check", code=1).endswith(" is missing\n")


def test_a_check_finds_a_message_that_is_there_twice(warehouse: Warehouse) -> None:
    writer = BronzeWriter(warehouse.bronze())
    table = warehouse.bronze()
    writer.add_files(written(table.folder, 0, 10))
    table.exists()
    (path,) = written(table.folder, 9, 2)
    table.commit(add=[describe(table.folder, path)])
    (problem,) = check_table(table).problems
    assert problem == f"message {record(9)['message_id']} is there 2 times"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 10.0), ("silver", 2.0), ("trigger", 0.5)],
)
def test_bronze_is_committed_as_often_as_its_readers_look(text: str, seconds: float) -> None:
    config = PipelineConfig(
        silver=(SCHEMA,) if text else (),
        bronze=BronzeConfig(trigger_ms=500 if text == "trigger" else 0),
    )
    assert config.bronze_seconds == seconds
