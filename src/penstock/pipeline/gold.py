"""Gold: tables computed from all messages, each as a function of records and of the old table.

A table grows in parts: `merged_…` of the rows of the table and of the result for new records equals
the result for all records at once, in any order and for any split. So late messages are counted,
and no message is counted twice.

`revision` grows with each change of a row, so changed rows can be selected.
"""

import datetime as dt
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.offsets import LOG_ID_CHARACTERS
from penstock.wire.fleximq import ClientId

__all__ = [
    "exchanges",
    "latency",
    "merged_exchanges",
    "merged_sessions",
    "merged_traffic",
    "sessions",
    "traffic",
]

_BROKER: Final = str(int(ClientId.BROKER))
"""The sender of replies that the broker itself sends."""
_ONE_SIDED_COLUMNS: Final = {
    "target": "string", "path": "string", "topic": "string", "replier": "string", "status": "int",
}  # fmt: skip
"""Columns of exchanges that come from the request or from the reply, not from both."""


# --- Traffic ------------------------------------------------------------------------------------


def traffic(records: DataFrame, *, window_seconds: int, revision: int = 0) -> DataFrame:
    """Count messages and bytes by topic, protocol and window of the broker's timestamp."""
    counted = records.groupBy(
        f.window("timestamp", f"{window_seconds} seconds").alias("window"), "topic", "protocol"
    ).agg(
        f.count("*").alias("messages"),
        f.coalesce(f.sum(f.octet_length("value")), f.lit(0)).cast("long").alias("bytes"),
    )
    return counted.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        "topic",
        "protocol",
        "messages",
        "bytes",
        f.lit(revision).cast("long").alias("revision"),
        f.to_date("window.start").alias("day"),
    )


def merged_traffic(rows: DataFrame) -> DataFrame:
    """Return the sum of the traffic tables whose rows these are."""
    keys = ("window_start", "window_end", "topic", "protocol", "day")
    return (
        rows.groupBy(*keys)
        .agg(*(f.sum(each).alias(each) for each in ("messages", "bytes")),
             f.max("revision").alias("revision"))
        .select(*rows.columns)
    )  # fmt: skip


# --- Requests and replies -----------------------------------------------------------------------


def exchanges(records: DataFrame, *, revision: int = 0) -> DataFrame:
    """Return a row for each request with its reply, and one for each reply without a request.

    A correlation id is chosen by the requester, which may use it again. A reply answers the last
    request before it in the log that has its id and came from its receiver, on the same day or the
    day before. Only the first reply to a request counts. So each request and each reply is in one
    row; `requested` is null for a reply alone, `replied` is null for a request without a reply.
    """
    asks, answers = f.col("kind") == "request", f.col("kind") == "reply"
    found = records.where((asks | answers) & f.col("correlation").isNotNull())
    return _pair(
        found.select(
            "correlation",
            f.when(asks, f.col("sender")).otherwise(_header("to")).alias("requester"),
            f.when(asks, _header("to")).alias("target"),
            f.when(asks, _header("path")).alias("path"),
            f.when(asks, f.col("topic")).alias("topic"),
            f.when(answers, f.col("sender")).alias("replier"),
            f.when(answers, f.col("status")).alias("status"),
            asks.alias("asks"),
            f.col("timestamp").alias("moment"),
            f.col("message_id").alias("id"),
            f.lit(revision).cast("long").alias("revision"),
        )
    )


def merged_exchanges(rows: DataFrame) -> DataFrame:
    """Merge the tables of exchanges whose rows these are, pairing replies and requests of all."""
    return _pair(_requests_and_replies(rows))


def _header(key: str) -> Column:
    """Return the value of the first header with a key, such as `to` or `path`."""
    fitting = f.filter("headers", lambda header: header["key"] == key)
    return f.get(fitting, f.lit(0))["value"].cast("string")


def _requests_and_replies(pairs: DataFrame) -> DataFrame:
    """Split exchanges into their requests and replies, one row each."""

    def part(moment: str, identifier: str, columns: tuple[str, ...]) -> Column:
        message = f.struct(
            "correlation",
            "requester",
            *(
                f.col(name) if name in columns else f.lit(None).cast(kind).alias(name)
                for name, kind in _ONE_SIDED_COLUMNS.items()
            ),
            f.lit(moment == "requested").alias("asks"),
            f.col(moment).alias("moment"),
            f.col(identifier).alias("id"),
            "revision",
        )
        return f.when(f.col(moment).isNotNull(), message)

    # Not a union of two DataFrames, which would have two partitions; see KeptPlan.
    both = f.array(
        part("requested", "request_id", ("target", "path", "topic")),
        part("replied", "reply_id", ("replier", "status")),
    )
    found = pairs.select(f.explode(both).alias("message"))
    return found.where(f.col("message").isNotNull()).select("message.*")


def _pair(messages: DataFrame) -> DataFrame:
    """Pair requests and replies into exchanges, in the order of message ids, which is the log's.

    A reply after the next day pairs with no request, so new records change files of few days.
    """
    asks = f.col("asks")
    one = f.struct("asks", "moment", "id", "replier", "status", "revision")
    by_id = Window.partitionBy(
        "requester", "correlation", f.substring("id", 1, LOG_ID_CHARACTERS)
    ).orderBy("id", "moment", asks.desc())

    def near(other: str) -> Column:
        return f.abs(f.date_diff("moment", f"{other}.moment")) <= 1

    yes, no = f.lit(True), f.lit(False)  # noqa: FBT003
    beside = f.when(asks, f.col("after.revision")).otherwise(f.col("before.revision"))
    answered = asks & ~f.coalesce("after.asks", yes) & near("after")
    answers = ~asks & f.coalesce("before.asks", no) & near("before")

    def of_reply(column: str) -> Column:
        return f.when(answered, f.col(f"after.{column}")).when(~asks, f.col(column))

    return (
        messages.withColumn("before", f.lag(one).over(by_id))
        .withColumn("after", f.lead(one).over(by_id))
        .where(~f.coalesce(answers, no))
        .select(
            "correlation",
            "requester",
            "target",
            "path",
            "topic",
            f.when(asks, f.col("moment")).alias("requested"),
            of_reply("moment").alias("replied"),
            of_reply("replier").alias("replier"),
            of_reply("status").alias("status"),
            f.when(asks, f.col("id")).alias("request_id"),
            of_reply("id").alias("reply_id"),
            # A neighbour with a newer revision may have changed the pairing of this row.
            f.greatest(f.col("revision"), beside).alias("revision"),
        )
        .withColumn("day", f.to_date(f.coalesce("requested", "replied")))
    )


def latency(
    pairs: DataFrame,
    *,
    window_seconds: int,
    unanswered_seconds: float,
    now: dt.datetime | Column,
    revision: int = 0,
) -> DataFrame:
    """Return reply latency by topic, path and window of the request time.

    Percentiles are exact, in milliseconds. A request is unanswered if it has no reply
    `unanswered_seconds` before `now`, or if the broker replied in place of the target client, which
    means that no reply will come.
    """
    replied_by_broker = (f.col("replier") == _BROKER) & (f.col("target") != _BROKER)
    answered = f.col("replied").isNotNull() & ~f.coalesce(replied_by_broker, f.lit(False))  # noqa: FBT003
    duration_us = f.when(answered, f.unix_micros("replied") - f.unix_micros("requested"))
    due = f.lit(now) - f.lit(dt.timedelta(seconds=unanswered_seconds))
    is_due = f.col("replied").isNotNull() | (f.col("requested") < due)
    shares = f.percentile(duration_us / 1000, f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99)))
    window = f.window("requested", f"{window_seconds} seconds").alias("window")
    return (
        pairs.where(f.col("requested").isNotNull())
        .groupBy(window, "topic", "path")
        .agg(
            f.count("*").alias("requests"),
            f.count_if(answered).alias("replies"),
            f.count_if(~answered & is_due).alias("unanswered"),
            shares.alias("shares"),
        )
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            "topic",
            "path",
            "requests",
            "replies",
            "unanswered",
            *(f.col("shares")[place].alias(name) for place, name in enumerate(
                ("p50_ms", "p95_ms", "p99_ms"))),
            f.lit(revision).cast("long").alias("revision"),
            f.to_date("window.start").alias("day"),
        )
    )  # fmt: skip


# --- Sessions -----------------------------------------------------------------------------------


def sessions(records: DataFrame, *, gap_seconds: int, revision: int = 0) -> DataFrame:
    """Return the sessions of each sender: runs of messages at most `gap_seconds` apart."""
    return (
        records.groupBy(
            "sender", "protocol", f.session_window("timestamp", f"{gap_seconds} seconds")
        )
        .agg(
            f.min("timestamp").alias("started"),
            f.max("timestamp").alias("ended"),
            f.count("*").alias("messages"),
            f.coalesce(f.sum(f.octet_length("value")), f.lit(0)).cast("long").alias("bytes"),
        )
        .select(
            "sender",
            "protocol",
            "started",
            "ended",
            "messages",
            "bytes",
            f.lit(revision).cast("long").alias("revision"),
            f.to_date("started").alias("day"),
        )
    )


def merged_sessions(rows: DataFrame, *, gap_seconds: int) -> DataFrame:
    """Merge the tables whose rows these are; sessions at most `gap_seconds` apart become one."""
    by_sender = Window.partitionBy("sender", "protocol").orderBy("started", "ended")
    before = by_sender.rowsBetween(Window.unboundedPreceding, -1)
    apart = f.unix_micros("started") - f.unix_micros(f.max("ended").over(before))
    begins = f.when(apart <= gap_seconds * 1_000_000, 0).otherwise(1)
    numbered = rows.withColumn("begins", begins)
    numbered = numbered.withColumn("number", f.sum("begins").over(by_sender))
    return (
        numbered.groupBy("sender", "protocol", "number")
        .agg(
            f.min("started").alias("started"),
            f.max("ended").alias("ended"),
            f.sum("messages").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.max("revision").alias("revision"),
        )
        .withColumn("day", f.to_date("started"))
        .select(*rows.columns)
    )
