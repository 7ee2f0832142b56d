"""Spark reads and writes a broker's topics: `spark.read.format("penstock")`."""

from penstock.spark.data_source import PenstockDataSource, register
from penstock.spark.epoch_publisher import EpochPublisher
from penstock.spark.scan import scan
from penstock.spark.session import session

__all__ = ["EpochPublisher", "PenstockDataSource", "register", "scan", "session"]
