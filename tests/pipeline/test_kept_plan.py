"""KeptPlan: a query is planned once, and gives the result of the rows of each step."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.pipeline.kept_plan import KeptPlan
from penstock.pipeline.step_session import session_for


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def test_each_step_has_the_result_of_its_own_rows_and_no_new_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls = []

    def ranked(rows: DataFrame) -> DataFrame:
        calls.append(1)
        rank = f.row_number().over(Window.partitionBy(f.col("n") % 2).orderBy("n"))
        return rows.withColumn("rank", rank).groupBy("rank").agg(f.sum("n").alias("sum"))

    plan = KeptPlan(session_for(spark, 0), tmp_path / "new", ranked)
    for first in (0, 100):
        found = plan(numbers(*range(first, first + 5))).to_pylist()
        expected = {1: 2 * first + 1, 2: 2 * first + 5, 3: first + 4}
        assert {row["rank"]: row["sum"] for row in found} == expected
    assert plan.is_kept
    assert len(calls) == 1
    assert plan(numbers()).to_pylist() == []
    assert list((tmp_path / "new").iterdir()) == []

    other = plan(numbers(7).append_column("text", pa.array(["a"])))
    assert other.to_pylist() == [{"rank": 1, "sum": 7}]
    assert len(calls) == 2  # rows with other columns are another query


@pytest.mark.parametrize("kind", ["exchange", "subquery"])
def test_a_query_whose_result_spark_keeps_is_planned_for_each_step(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    def query(rows: DataFrame) -> DataFrame:
        if kind == "exchange":
            return rows.repartition(2).groupBy().agg(f.sum("n").alias("n"))
        rows.createOrReplaceTempView("kept_rows")
        return rows.sparkSession.sql("select (select sum(n) from kept_rows) as n")

    plan = KeptPlan(session_for(spark, 0), tmp_path, query)
    for value in (1, 20):
        assert plan(numbers(value, value)).to_pylist() == [{"n": 2 * value}]
        assert not plan.is_kept
