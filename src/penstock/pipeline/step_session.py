"""The Spark session of a step: one for many rows, another for few.

Spark generates and compiles Java code for each query. The code contains the offsets and times of
the step, so each step compiles it again, and the JVM never optimizes it. For few rows, that takes
much longer than the rows. A second session runs such steps without generated code: its classes are
the same for all steps and tables.
"""

from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from penstock.limits import PIPELINE_SMALL_STEP_ROWS_MAX
from penstock.pipeline.tables import prepare

__all__ = ["session_for"]

_FEW_ROWS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_sessions: Final[WeakKeyDictionary[SparkSession, SparkSession]] = WeakKeyDictionary()


def session_for(spark: SparkSession, rows: int) -> SparkSession:
    """Return the session for a step of about so many rows; it shares the context of `spark`."""
    if rows > PIPELINE_SMALL_STEP_ROWS_MAX:
        return spark
    found = _sessions.get(spark)
    if found is None:
        found = spark.newSession()
        prepare(found)
        for name, value in _FEW_ROWS.items():
            found.conf.set(name, value)
        _sessions[spark] = found
    return found
