"""Gold tables from SQL files: the SELECT in `NAME.sql` becomes the table NAME."""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.errors import ConfigError
from penstock.pipeline.bronze import bronze_offsets, table_offsets
from penstock.pipeline.config import BUILT_IN_GOLD, NAME_PATTERN, GoldTableConfig
from penstock.pipeline.errors import QueryFailed
from penstock.pipeline.gold_jobs import REVISION
from penstock.pipeline.offsets import Stream, least, to_transactions
from penstock.pipeline.partitions import columns, partition_problem, with_partitions
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.step_session import session_for
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse

__all__ = ["SqlJob", "sql_jobs"]

_INPUT: Final = "input"
_QUERY: Final = "query"
_SHOWN_LINES: Final = 1


def sql_jobs(
    spark: SparkSession,
    warehouse: Warehouse,
    folder: str,
    *,
    planned: frozenset[str],
    tables: Sequence[GoldTableConfig] = (),
) -> list["SqlJob"]:
    """Return a job for each `NAME.sql` in a folder, sorted by name; raise ConfigError.

    `planned` are the other tables of the pipeline, whether they exist yet or not.
    """
    if not folder:
        return []
    files = Path(folder)
    if not files.is_dir():
        raise ConfigError("pipeline.toml", "gold.sql", f"{folder} is not a folder")
    jobs = []
    partitions = {each.name: each.partition_by for each in tables}
    for file in sorted(files.glob("*.sql")):
        if not re.fullmatch(NAME_PATTERN, file.stem) or file.stem in {"bronze", *BUILT_IN_GOLD}:
            problem = f"{file.name}: expected a-z, 0-9 and _ in the name, and no built-in table"
            raise ConfigError("pipeline.toml", "gold.sql", problem)
        later = {other.stem for other in sorted(files.glob("*.sql")) if other >= file}
        stems = frozenset(other.stem for other in files.glob("*.sql"))
        others = (planned | stems) - later
        jobs.append(
            SqlJob(
                spark,
                warehouse,
                file,
                later=frozenset(later),
                planned=others,
                partition_by=partitions.pop(file.stem, ()),
            )
        )
    if partitions:
        problem = f"there is no {next(iter(partitions))}.sql in {folder}"
        raise ConfigError("pipeline.toml", "gold.table", problem)
    return jobs


class SqlJob:
    """Recomputes a table when its query or a table in the query has changed.

    The query may use all tables except its own and those of the files after it, `later`. It waits
    for tables in it that are `planned` and do not exist yet.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        file: Path,
        *,
        later: frozenset[str],
        planned: frozenset[str],
        partition_by: Sequence[str] = (),
    ) -> None:
        self.name = f"gold.{file.stem}"
        self.table = warehouse.gold(file.stem, partition_by=columns(partition_by))
        self._partition_by = partition_by
        self._file = file
        self._later = later
        self._planned = planned
        self._spark = spark
        self._warehouse = warehouse
        self._reflected: dict[Stream, int] = {}
        self._tables: dict[str, Table] = {}
        """Tables of the query. Opening one reads its whole log, a refresh only what is new."""

    def step(self, stage: StageProgress) -> bool:
        """Recompute the table if its input changed."""
        text = self._file.read_text(encoding="utf-8").strip().rstrip(";")
        words = frozenset(re.findall(r"\w+", text))
        tables = self._inputs(words - self._later)
        if words & (self._planned - tables.keys()):
            return False
        version = sum(table.log.refresh() for table in tables.values())
        self.table.exists()
        query = zlib.crc32(text.encode())
        log = self.table.log
        reflected = self._input_offsets(tables)
        if log.transaction_version(_INPUT) == version and log.transaction_version(_QUERY) == query:
            self._reflected = reflected
            return False
        frame = self._query(text, tables)
        revision = 1 + (log.transaction_version(REVISION) or 0)
        frame = frame.withColumn(REVISION, f.lit(revision).cast("long"))
        try:
            frame = with_partitions(frame, self._partition_by)
            frame.select(*self.table.partition_by)
        except AnalysisException as error:
            reason = f"gold.table partition_by: {str(error).splitlines()[0]}"
            raise QueryFailed(str(self._file), reason) from None
        if self.table.partition_by:
            problem = partition_problem(self.table.partition_by, frame.schema)
            wrong = frame.where(problem.isNotNull()).select(problem).first()
            if wrong is not None:
                raise QueryFailed(str(self._file), str(wrong[0]))
        self.table.evolve_schema(frame)
        files = self.table.write(frame)
        old = list(self.table.log.files())
        transactions = {_INPUT: version, _QUERY: query, REVISION: revision}
        transactions |= to_transactions(reflected)
        self.table.commit(add=files, remove=old, transactions=transactions)
        self._reflected = reflected
        stage.batch_rows = sum(each.rows for each in files)
        return False

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        """See Job."""
        return self._reflected or table_offsets(self.table, streams)

    def _inputs(self, names: frozenset[str]) -> dict[str, Table]:
        """Return the tables with these names that exist."""
        self._tables |= self._warehouse.tables(names - self._tables.keys())
        return {name: table for name, table in self._tables.items() if name in names}

    def _input_offsets(self, tables: Mapping[str, Table]) -> dict[Stream, int]:
        """Return the offsets that all tables of the query reflect.

        `dead_letters` is current whenever the silver tables are, and has no offsets of its own.
        """
        streams = bronze_offsets(self._warehouse.bronze())
        inputs = [table for name, table in tables.items() if name != "dead_letters"]
        return least(table_offsets(table, streams) for table in inputs) if inputs else streams

    def _query(self, text: str, tables: Mapping[str, Table]) -> DataFrame:
        spark = session_for(self._spark, sum(table.rows() for table in tables.values()))
        for name, table in tables.items():
            table.read(spark).createOrReplaceTempView(name)
        try:
            frame = spark.sql(text)
        except (AnalysisException, ParseException) as error:
            reason = " ".join(str(error).splitlines()[:_SHOWN_LINES])
            raise QueryFailed(str(self._file), reason) from None
        finally:  # the plan keeps the resolved views
            for name in tables:
                spark.catalog.dropTempView(name)
        names = [name.lower() for name in frame.columns]
        for name in names:
            if names.count(name) > 1:
                problem = f"two columns are named {name}; name one of them with AS"
                raise QueryFailed(str(self._file), problem)
        return frame
