"""Gold tables of the user's own: a SELECT in a file is a table of the file's name."""

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError
from penstock.pipeline.config_loading import BUILT_IN_GOLD
from penstock.pipeline.errors import QueryFailed
from penstock.pipeline.gold_jobs import REVISION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.progress import StageProgress
    from penstock.pipeline.warehouse import Warehouse

__all__ = ["SqlJob", "sql_jobs"]

_INPUT: Final = "input"
_QUERY: Final = "query"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SHOWN_LINES: Final = 1


def sql_jobs(spark: "SparkSession", warehouse: "Warehouse", folder: str) -> list["SqlJob"]:
    """Return a job for each `NAME.sql` of a folder, in the order of their names."""
    if not folder:
        return []
    place = Path(folder)
    if not place.is_dir():
        raise ConfigError("pipeline.toml", "gold.sql", f"{folder} is no folder")
    jobs = []
    for file in sorted(place.glob("*.sql")):
        if not _NAME.fullmatch(file.stem) or file.stem in {"bronze", *BUILT_IN_GOLD}:
            problem = f"{file.name}: expected a name of small letters that no other table has"
            raise ConfigError("pipeline.toml", "gold.sql", problem)
        later = {other.stem for other in sorted(place.glob("*.sql")) if other >= file}
        jobs.append(SqlJob(spark, warehouse, file, later=frozenset(later)))
    return jobs


class SqlJob:
    """Computes a table anew when its query, or a table that this names, has changed.

    It may read all tables but those of the files that come `later`.
    """

    def __init__(
        self, spark: "SparkSession", warehouse: "Warehouse", file: Path, *, later: frozenset[str]
    ) -> None:
        self.name = f"gold.{file.stem}"
        self.table = warehouse.gold(file.stem, by_day=False)
        self._file = file
        self._later = later
        self._spark = spark
        self._warehouse = warehouse

    def step(self, stage: "StageProgress") -> bool:
        """Compute the table if there is something new; tell whether there was."""
        text = self._file.read_text(encoding="utf-8").strip().rstrip(";")
        tables = {
            name: table
            for name, table in self._warehouse.tables().items()
            if name not in self._later and re.search(rf"\b{name}\b", text)
        }
        version = sum(table.log.refresh() for table in tables.values())
        found = self.table.exists()
        query = zlib.crc32(text.encode())
        if (
            found
            and self.table.log.mark(_INPUT) == version
            and self.table.log.mark(_QUERY) == query
        ):
            return False
        for name, table in tables.items():
            table.read(self._spark).createOrReplaceTempView(name)
        frame = self._query(text)
        revision = 1 + ((self.table.log.mark(REVISION) or 0) if found else 0)
        from pyspark.sql import functions as f  # noqa: PLC0415

        frame = frame.withColumn(REVISION, f.lit(revision).cast("long"))
        self.table.fit(frame)
        files = self.table.write(frame)
        old = list(self.table.log.files())
        marks = {_INPUT: version, _QUERY: query, REVISION: revision}
        self.table.commit(add=files, remove=old, marks=marks)
        stage.batch_rows = sum(each.rows for each in files)
        return True

    def _query(self, text: str) -> "DataFrame":
        from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415

        try:
            frame = self._spark.sql(text)
        except (AnalysisException, ParseException) as error:
            reason = " ".join(str(error).splitlines()[:_SHOWN_LINES])
            raise QueryFailed(str(self._file), reason) from None
        names = [name.lower() for name in frame.columns]
        for name in names:
            if names.count(name) > 1:
                problem = f"two columns are named {name}; name one of them with AS"
                raise QueryFailed(str(self._file), problem)
        return frame
