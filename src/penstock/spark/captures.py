"""Captures: raw byte streams of connections, decoded on Spark with the kernels and codecs.

A folder has one file for each connection and direction:

    <connection>.<protocol>.<direction>.bin       plant-7.herald.c2s.bin, 42.auto.s2c.bin

The connection is any text. The protocol is a protocol's label or `auto`: then it is detected from
the client's first bytes, also for the broker's file beside it. The direction is `c2s` for bytes of
the client and `s2c` for bytes of the broker. A file begins with the first byte of its connection.
One task decodes it, without loading it whole.

A file `*.pcap` or `*.pcapng` has the packets of any number of connections; see capture_packets.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.model import is_publishable
from penstock.ports.selection import Selection
from penstock.protocols import PROTOCOLS
from penstock.spark.arrow_batches import to_spark_batches
from penstock.spark.capture_files import AUTO, DECODED_SCHEMA, Capture, decode_capture
from penstock.spark.capture_packets import PACKET_SUFFIXES, decode_packet_file
from penstock.spark.capture_roles import CaptureContext
from penstock.spark.errors import InvalidOption
from penstock.spark.schema import RECORD

__all__ = ["DECODED", "capture_errors", "capture_records", "decode_captures", "read_captures"]

DECODED: Final = StructType(
    [
        *RECORD.fields,
        StructField("file", StringType()),
        StructField("connection", StringType()),
        StructField("direction", StringType()),
        StructField("position", LongType()),
        StructField("length", LongType()),
        StructField("error_code", StringType()),
        StructField("error", StringType()),
    ]
)
"""The columns of a record, and those of captures."""

_PLACE: Final = ("connection", "direction", "file")
_PROTOCOLS: Final = "|".join((*PROTOCOLS.labels, AUTO))
_NAME: Final = rf"([^/]+)\.({_PROTOCOLS})\.(c2s|s2c)\.bin$"


def read_captures(spark: SparkSession, folder: str) -> DataFrame:
    """List the captures below a folder: file, connection, protocol, direction, length, modified.

    Only `*.bin`, `*.pcap` and `*.pcapng` files are listed, and none is read. Protocol and direction
    are null if the file name does not contain them; for a `*.bin` file, `decode_captures` then
    returns an error row.
    """
    files = (
        spark.read.format("binaryFile")
        .option("pathGlobFilter", "{*.bin,*.pcap,*.pcapng}")
        .option("recursiveFileLookup", "true")
        .load(folder)
    )

    def part(number: int) -> Column:
        return F.nullif(F.regexp_extract("path", _NAME, number), F.lit(""))

    return files.select(
        F.col("path").alias("file"),
        part(1).alias("connection"),
        part(2).alias("protocol"),
        part(3).alias("direction"),
        "length",
        F.col("modificationTime").alias("modified"),
    )


def decode_captures(captures: DataFrame, *, channels: Mapping[int, str] | None = None) -> DataFrame:
    """Decode what `read_captures` listed: a row for each message and for each error.

    `offset` counts the messages of a file from 0; an error has the offset of the next message.
    `channels` maps herald channels to topic names; others are `channel/n`. Raise InvalidOption.
    """
    _check_channels(channels or {})
    columns = captures.select(*Capture._fields)
    return columns.mapInArrow(_decoder(dict(channels or {})), DECODED)


def capture_records(decoded: DataFrame) -> DataFrame:
    """Keep the messages: the record's columns, and connection, direction and file."""
    return decoded.where(F.col("error_code").isNull()).select(*RECORD.fieldNames(), *_PLACE)


def capture_errors(decoded: DataFrame) -> DataFrame:
    """Keep the errors, with their positions in the files."""
    return decoded.where(F.col("error_code").isNotNull()).select(
        *_PLACE, "protocol", "offset", "position", "length", "error_code", "error"
    )


def _check_channels(channels: Mapping[int, str]) -> None:
    allowed = "channels from 0 to 255, each with a topic of its own"
    for number, name in channels.items():
        if not 0 <= number <= 255:
            raise InvalidOption("channels", f"{number} is no channel", allowed)
        if not is_publishable(name):
            raise InvalidOption("channels", f"{name!r} is no topic", allowed)
    every = [channels.get(number, f"channel/{number}") for number in range(256)]
    for number, name in channels.items():
        if every.count(name) > 1:
            raise InvalidOption("channels", f"{number} is not alone on {name!r}", allowed)


def _decoder(
    channels: Mapping[int, str],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return partial(_decode, channels=channels)


def _decode(
    batches: Iterator[pa.RecordBatch], *, channels: Mapping[int, str]
) -> Iterator[pa.RecordBatch]:
    """Decode the files of one task."""
    context = CaptureContext(channels)
    decoded = (
        rows
        for batch in batches
        for row in batch.to_pylist()
        for rows in _decode_file(Capture(**row), context)
    )
    return to_spark_batches(decoded, DECODED_SCHEMA, Selection())


def _decode_file(capture: Capture, context: CaptureContext) -> Iterator[pa.RecordBatch]:
    if capture.file.endswith(PACKET_SUFFIXES):
        return decode_packet_file(capture, context)
    return decode_capture(capture, context)
