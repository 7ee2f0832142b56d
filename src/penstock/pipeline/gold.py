"""Gold: what is computed of all messages. Each table is a function of records, and of itself.

A table grows by parts: `merged_…(old, new)` of what is there and of what was computed of new
records is the same as computing it of all records at once, whatever the parts were and whenever
they came. So nothing is ever too late for gold, and nothing is counted twice.

`revision` grows with each change of a row, so that what changed since can be found.
"""

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "exchanges",
    "latency",
    "merged_exchanges",
    "merged_sessions",
    "merged_traffic",
    "sessions",
    "traffic",
]


# --- Traffic ------------------------------------------------------------------------------------


def traffic(records: "DataFrame", *, window_seconds: int, revision: int = 0) -> "DataFrame":
    """Return messages and bytes of each topic and protocol, by window of the broker's time."""
    from pyspark.sql import functions as f  # noqa: PLC0415

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


def merged_traffic(old: "DataFrame", new: "DataFrame") -> "DataFrame":
    """Return the traffic of both."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    keys = ("window_start", "window_end", "topic", "protocol", "day")
    return (
        old.unionByName(new)
        .groupBy(*keys)
        .agg(*(f.sum(each).alias(each) for each in ("messages", "bytes")),
             f.max("revision").alias("revision"))
        .select(*new.columns)
    )  # fmt: skip


# --- Requests and replies -----------------------------------------------------------------------


def exchanges(records: "DataFrame", *, revision: int = 0) -> "DataFrame":
    """Return a row for each correlation: when it was asked, and when it was first answered.

    `requested` is null where only the reply is there, `replied` where there is none yet. The topic
    is the request's.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    asks, answers = f.col("kind") == "request", f.col("kind") == "reply"
    told = records.where((asks | answers) & f.col("correlation").isNotNull())
    rows = told.select(
        "correlation",
        f.when(asks, f.col("timestamp")).alias("requested"),
        f.when(answers, f.col("timestamp")).alias("replied"),
        f.when(asks, f.col("topic")).alias("topic"),
        f.when(asks, f.col("sender")).alias("requester"),
        f.when(answers, f.col("sender")).alias("replier"),
        f.when(answers, f.col("status")).alias("status"),
        f.lit(revision).cast("long").alias("revision"),
    )
    return _paired(rows)


def merged_exchanges(old: "DataFrame", new: "DataFrame") -> "DataFrame":
    """Return the exchanges of both; a reply finds the request that came before it."""
    return _paired(old.unionByName(new).drop("day"))


def _paired(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    def of_first(column: str, moment: str) -> "Column":
        return f.min_by(column, moment).alias(column)

    return (
        rows.groupBy("correlation")
        .agg(
            f.min("requested").alias("requested"),
            f.min("replied").alias("replied"),
            of_first("topic", "requested"),
            of_first("requester", "requested"),
            of_first("replier", "replied"),
            of_first("status", "replied"),
            f.max("revision").alias("revision"),
        )
        .withColumn("day", f.to_date(f.coalesce("requested", "replied")))
    )


def latency(
    pairs: "DataFrame",
    *,
    window_seconds: int,
    unanswered_seconds: float,
    now: dt.datetime,
    revision: int = 0,
) -> "DataFrame":
    """Return how fast requests of each topic were answered, by window of the request's time.

    Percentiles are exact, in milliseconds. A request is unanswered when there is no reply
    `unanswered_seconds` before `now`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    took = f.unix_micros("replied") - f.unix_micros("requested")
    due = now - dt.timedelta(seconds=unanswered_seconds)
    unanswered = f.col("replied").isNull() & (f.col("requested") < f.lit(due))
    shares = f.percentile(took / 1000, f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99)))
    return (
        pairs.where(f.col("requested").isNotNull())
        .groupBy(f.window("requested", f"{window_seconds} seconds").alias("window"), "topic")
        .agg(
            f.count("*").alias("requests"),
            f.count("replied").alias("replies"),
            f.count_if(unanswered).alias("unanswered"),
            shares.alias("shares"),
        )
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            "topic",
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


def sessions(records: "DataFrame", *, gap_seconds: int, revision: int = 0) -> "DataFrame":
    """Return the sessions of each sender: messages with no more than the gap between them."""
    from pyspark.sql import functions as f  # noqa: PLC0415

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


def merged_sessions(old: "DataFrame", new: "DataFrame", *, gap_seconds: int) -> "DataFrame":
    """Return the sessions of both; those that are no further apart than the gap become one."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    by_sender = Window.partitionBy("sender", "protocol").orderBy("started", "ended")
    before = by_sender.rowsBetween(Window.unboundedPreceding, -1)
    apart = f.unix_micros("started") - f.unix_micros(f.max("ended").over(before))
    begins = f.when(apart <= gap_seconds * 1_000_000, 0).otherwise(1)
    numbered = old.unionByName(new).withColumn("begins", begins)
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
        .select(*new.columns)
    )
