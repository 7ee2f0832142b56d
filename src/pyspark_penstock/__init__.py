"""How Spark finds the data source `penstock`: it looks for packages whose names start like this."""

from penstock.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
