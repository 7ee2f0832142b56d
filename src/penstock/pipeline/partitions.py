"""Partition columns of tables: columns themselves, or units of a time, such as `day(at)`."""

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from penstock.limits import PIPELINE_PARTITION_BYTES_MAX
from penstock.pipeline.config import PARTITION_PATTERN, partition_column
from penstock.pipeline.data_files import NULL_PARTITION

__all__ = ["columns", "partition_problem", "with_partitions"]


def columns(partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of partitions."""
    return tuple(map(partition_column, partition_by))


def with_partitions(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Add the columns of time units: the first day of a year or month, the day, or the hour."""
    for each in partition_by:
        found = re.fullmatch(PARTITION_PATTERN, each)
        if found is None or not found[2]:
            continue
        moment = f.col(found[3])
        if found[2] == "hour":
            value = f.date_format(moment, "yyyy-MM-dd HH")
        else:
            value = f.to_date(f.date_trunc(found[2], moment))
        rows = rows.withColumn(partition_column(each), value)
    return rows


def partition_problem(names: Sequence[str], schema: StructType) -> Column:
    """Return the error of a row whose text cannot be the name of a folder, null for others.

    Delta reads empty text as null, and file systems limit the length of a name.
    """
    errors = [f.lit(None).cast("string")]
    for name in names:
        if isinstance(schema[name].dataType, StringType):
            text = f.col(name)
            unfit = (text == "") | (text == NULL_PARTITION)
            unfit |= f.octet_length(text) > PIPELINE_PARTITION_BYTES_MAX
            limit = f"1 to {PIPELINE_PARTITION_BYTES_MAX} bytes"
            message = f.concat(f.lit(f"{name} cannot name a partition, it needs {limit}: "), text)
            errors.append(f.when(unfit, f.substring(message, 1, 200)))
    return f.coalesce(*errors)
