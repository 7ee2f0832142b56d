"""Spark reads and writes a broker's topics: `spark.read.format("penstock")`."""

from penstock.spark.session import session
from penstock.spark.source import PenstockDataSource, register

__all__ = ["PenstockDataSource", "register", "session"]
