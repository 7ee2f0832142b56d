"""Records made by hand, as the data source gives them."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.storage.dictionaries import RECORD_SCHEMA

START = dt.datetime(2026, 11, 14, 23, 59, 0, tzinfo=dt.UTC)
"""The time of the record at offset 0; each is a second after the one before."""
LOG = 0x0123456789AB


def record(offset: int, value: bytes | None = b"", **more: Any) -> dict[str, Any]:
    """A record; what is not given is made of its offset."""
    log = more.pop("log", LOG)
    found = {
        "key": None,
        "value": value,
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "timestamp": START + dt.timedelta(seconds=offset),
        "timestampType": 1,
        "headers": [],
        "protocol": "herald",
        "kind": "publish",
        "sender": "somebody",
        "created": None,
        "correlation": None,
        "status": None,
        "message_id": "",
    }
    found |= more
    text = f"{log:012x}8{found['partition']:03x}{1 << 63 | offset:016x}"
    found["message_id"] = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return found


def arrow(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=RECORD_SCHEMA)


def frame(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(arrow(rows))


def write_parquet(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Put a file of records where Spark's stream of files finds it, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow(rows), folder / f".{name}.new")
    (folder / f".{name}.new").rename(folder / f"{name}.parquet")
