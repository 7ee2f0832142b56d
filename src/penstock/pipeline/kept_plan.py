"""A query that Spark plans once and runs for the rows of every step.

Spark takes longer to plan a query than to run it for a few rows, and a plan names the files that it
reads, so each step would plan its query again. Here the query reads one file, which gets the rows
of each step, and Spark runs the plan that it has.

Spark keeps the result of an exchange for the next run of a plan. All rows are in one partition, so
that most plans have no exchange; one that has is planned for each step.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.limits import PIPELINE_READ_ROWS_MAX
from penstock.spark.file_rows import FileRows

__all__ = ["KeptPlan"]

_WITH_STATE: Final = ("Exchange", "Subquery", "AdaptiveSparkPlan", "InMemoryRelation")
"""Parts of a plan whose results Spark keeps."""


class KeptPlan:
    """A function of DataFrames, for Arrow tables. One thread calls it.

    A file in `folder` holds the rows while the query runs. Tasks must see it, so Spark's master is
    local.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, function: Callable[[DataFrame], DataFrame]
    ) -> None:
        self._spark = spark
        self._file = folder / f"{uuid4().hex}.arrow"
        self._function = function
        self._schema: pa.Schema | None = None
        self._frame: DataFrame | None = None
        self.is_kept = False
        """Whether the next step runs the plan of the last one."""

    def frame(self, schema: pa.Schema) -> DataFrame:
        """Return the query for rows of a schema."""
        if self._frame is None or schema != self._schema or not self.is_kept:
            kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
            rows = self._spark.range(0, 1, 1, 1).mapInArrow(FileRows(str(self._file)), kinds)
            self._frame, self._schema = self._function(rows), schema
            self.is_kept = not _has_state(self._frame)
        return self._frame

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the result for rows."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                pa.OSFile(str(self._file), "wb") as file,
                pa.ipc.new_file(file, rows.schema) as writer,
            ):
                writer.write_table(rows, PIPELINE_READ_ROWS_MAX)
            return self.frame(rows.schema).toArrow()
        finally:
            self._file.unlink(missing_ok=True)


def _has_state(frame: DataFrame) -> bool:
    plan = str(cast("Any", frame)._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001
    return any(name in plan for name in _WITH_STATE)
