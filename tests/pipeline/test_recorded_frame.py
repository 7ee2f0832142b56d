"""Recorded: a function of DataFrames is called once, and gives the same results for every step."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.recorded_frame import Recorded


def test_the_expressions_are_built_once(spark: SparkSession) -> None:
    calls = []

    def decode(records: DataFrame) -> DataFrame:
        calls.append(1)
        found = records.where(f.col("id") > 1).withColumn("double", f.col("id") * 2)
        return found.withColumn("text", f.lit("a")).drop("id", "text").select("double", f.lit(1))

    recorded = Recorded(decode)
    for start in (0, 10):
        records = spark.range(start, start + 4)
        assert recorded(records).collect() == decode(records).collect()
    assert len(calls) == 3  # two of them are those of this test


def test_a_function_that_looks_at_the_columns_is_called_for_each_step(spark: SparkSession) -> None:
    recorded = Recorded(lambda records: records.select(*(f.col(n) for n in records.columns)))
    assert [row[0] for row in recorded(spark.range(2)).collect()] == [0, 1]
    other = spark.range(2).withColumnRenamed("id", "number")
    assert recorded(other).columns == ["number"]
