"""Gold: what is computed of all messages. Each table is a function of records, and of itself.

A table grows by parts: `merged_…(old, new)` of what is there and of what was computed of new
records is the same as computing it of all records at once, whatever the parts were and whenever
they came. So nothing is ever too late for gold, and nothing is counted twice.

`revision` grows with each change of a row, so that what changed since can be found.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

from penstock.pipeline.positions import LOG_CHARACTERS
from penstock.wire.fleximq import ClientId

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

_BROKER: Final = str(int(ClientId.BROKER))
"""Who the broker is where it replies itself."""
_OF_ONE: Final = {
    "target": "string", "path": "string", "topic": "string", "replier": "string", "status": "int",
}  # fmt: skip
"""Columns of exchanges that either the request gives or the reply."""


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
    """Return a row for each request with its reply, and one for each reply that answers none.

    An id is the requester's own, and it may use it again: a reply is the answer to the last request
    before it, in the order of the log, of the client that it is for and with its id, if that came
    on the same day or the day before. Only the first reply to a request is its answer. So each
    request and each reply is in one row; `requested` is null where only the reply is there,
    `replied` where there is none yet.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    asks, answers = f.col("kind") == "request", f.col("kind") == "reply"
    told = records.where((asks | answers) & f.col("correlation").isNotNull())
    return _paired(
        told.select(
            "correlation",
            f.when(asks, f.col("sender")).otherwise(_routed("to")).alias("requester"),
            f.when(asks, _routed("to")).alias("target"),
            f.when(asks, _routed("path")).alias("path"),
            f.when(asks, f.col("topic")).alias("topic"),
            f.when(answers, f.col("sender")).alias("replier"),
            f.when(answers, f.col("status")).alias("status"),
            asks.alias("asks"),
            f.col("timestamp").alias("moment"),
            f.col("message_id").alias("id"),
            f.lit(revision).cast("long").alias("revision"),
        )
    )


def merged_exchanges(old: "DataFrame", new: "DataFrame") -> "DataFrame":
    """Return the exchanges of both; a reply finds the request that came before it."""
    return _paired(_told(old).unionByName(_told(new)))


def _routed(key: str) -> "Column":
    """Return what the first header with a key says: whom a message is for, and by which path."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    fitting = f.filter("headers", lambda header: header["key"] == key)
    return f.get(fitting, f.lit(0))["value"].cast("string")


def _told(pairs: "DataFrame") -> "DataFrame":
    """Return the requests and replies that exchanges were made of."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    def part(moment: str, identifier: str, columns: tuple[str, ...]) -> "DataFrame":
        return pairs.where(f.col(moment).isNotNull()).select(
            "correlation",
            "requester",
            *(
                f.col(name) if name in columns else f.lit(None).cast(kind).alias(name)
                for name, kind in _OF_ONE.items()
            ),
            f.lit(moment == "requested").alias("asks"),
            f.col(moment).alias("moment"),
            f.col(identifier).alias("id"),
            "revision",
        )

    return part("requested", "request_id", ("target", "path", "topic")).unionByName(
        part("replied", "reply_id", ("replier", "status"))
    )


def _paired(told: "DataFrame") -> "DataFrame":
    """Return exchanges of requests and replies. A message id sorts as the log does.

    What comes later than the next day is no answer: so new records concern files of few days.
    """
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    asks = f.col("asks")
    one = f.struct("asks", "moment", "id", "replier", "status", "revision")
    by_id = Window.partitionBy(
        "requester", "correlation", f.substring("id", 1, LOG_CHARACTERS)
    ).orderBy("id", "moment", asks.desc())

    def near(other: str) -> "Column":
        return f.abs(f.date_diff("moment", f"{other}.moment")) <= 1

    yes, no = f.lit(True), f.lit(False)  # noqa: FBT003
    beside = f.when(asks, f.col("after.revision")).otherwise(f.col("before.revision"))
    answered = asks & ~f.coalesce("after.asks", yes) & near("after")
    answers = ~asks & f.coalesce("before.asks", no) & near("before")

    def of_reply(column: str) -> "Column":
        return f.when(answered, f.col(f"after.{column}")).when(~asks, f.col(column))

    return (
        told.withColumn("before", f.lag(one).over(by_id))
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
            # What came beside it may have taken its reply, or made one of it that answers nothing.
            f.greatest(f.col("revision"), beside).alias("revision"),
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
    """Return how fast requests of each topic and path were answered, by window of their time.

    Percentiles are exact, in milliseconds. A request is unanswered when there is no reply
    `unanswered_seconds` before `now`, or when the broker replied in place of who was asked: it says
    that no answer will come.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    given_up = (f.col("replier") == _BROKER) & (f.col("target") != _BROKER)
    answered = f.col("replied").isNotNull() & ~f.coalesce(given_up, f.lit(False))  # noqa: FBT003
    took = f.when(answered, f.unix_micros("replied") - f.unix_micros("requested"))
    due = now - dt.timedelta(seconds=unanswered_seconds)
    is_due = f.col("replied").isNotNull() | (f.col("requested") < f.lit(due))
    shares = f.percentile(took / 1000, f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99)))
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
