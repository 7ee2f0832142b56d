"""The Spark session of a pipeline.toml. This module imports pyspark."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.cli.spark.errors import starting_spark
from penstock.pipeline.config import SparkConfig
from penstock.spark.session import session

__all__ = ["start_session"]


def start_session(
    name: str, settings: SparkConfig, defaults: Mapping[str, str], *, short: bool
) -> SparkSession:
    """Start Spark as `[spark]` says, which may override `defaults`; see session for `short`."""
    conf = {**defaults, "spark.driver.memory": settings.memory, **settings.conf}
    with starting_spark():
        return session(name, master=settings.master, short=short, **conf)
