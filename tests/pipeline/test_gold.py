"""Gold on frames that stand still: what is computed, and that parts merge into the whole."""

import datetime as dt
import random
from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import gold
from tests.support.pipeline_records import START, frame, record


def rows(found: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, found.select(*columns).collect()), key=str)


def local(moment: dt.datetime) -> dt.datetime:
    """A time as Spark gives it back: in the zone of this process, without one."""
    return moment.astimezone().replace(tzinfo=None)


def in_parts(spark: SparkSession, given: list[dict[str, Any]], seed: int = 1) -> list[DataFrame]:
    """The records in three frames, in no order."""
    shuffled = random.Random(seed).sample(given, len(given))
    third = len(given) // 3
    return [
        frame(spark, shuffled[:third]),
        frame(spark, shuffled[third : 2 * third]),
        frame(spark, shuffled[2 * third :]),
    ]


def test_traffic_counts_messages_and_bytes_in_each_window(spark: SparkSession) -> None:
    given = [
        record(n, bytes(n % 7), topic=f"t{n % 2}", protocol=("herald", "rheos1")[n % 3 == 0])
        for n in range(150)
    ]
    expected: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for each in given:
        start = each["timestamp"].replace(second=0)
        found = expected[local(start), each["topic"], each["protocol"]]
        found[0] += 1
        found[1] += len(each["value"])
    columns = ("window_start", "topic", "protocol", "messages", "bytes")
    exact = sorted(((*key, *value) for key, value in expected.items()), key=str)
    assert rows(gold.traffic(frame(spark, given), window_seconds=60), *columns) == exact
    first, second, third = (
        gold.traffic(part, window_seconds=60, revision=n)
        for n, part in enumerate(in_parts(spark, given))
    )
    merged = gold.merged_traffic(gold.merged_traffic(first, second), third)
    assert rows(merged, *columns) == exact
    assert {row[0] for row in merged.select("revision").collect()} == {2}
    days = {row[0] for row in merged.select("day").collect()}
    assert days == {dt.date(2026, 11, 14), dt.date(2026, 11, 15)}


def test_requests_meet_their_replies_whichever_part_they_come_in(spark: SparkSession) -> None:
    given = []
    took_ms = {}
    for n in range(60):
        asked = START + dt.timedelta(milliseconds=500 * n)
        more = {"topic": f"service/{n % 2}", "correlation": f"c{n}", "kind": "request"}
        given.append(record(2 * n, b"?", **more, timestamp=asked, sender=f"asks{n % 3}"))
        if n % 10 == 9:
            continue  # nobody answers
        took_ms[n] = 1 + (n * 37) % 50
        more = {"topic": "inbox", "correlation": f"c{n}", "kind": "reply", "status": 200}
        answered = asked + dt.timedelta(milliseconds=took_ms[n])
        given.append(record(2 * n + 1, b"!", **more, timestamp=answered, sender="answers"))
    given.append(record(1000, b"!", kind="reply", correlation="of old"))
    given.append(record(1001, b"", correlation="no request"))
    parts = [gold.exchanges(part) for part in in_parts(spark, given, seed=5)]
    pairs = gold.merged_exchanges(gold.merged_exchanges(parts[2], parts[0]), parts[1]).persist()
    assert pairs.count() == 61
    assert (
        pairs.where("replier = 'answers' and status = 200 and requester is not null").count() == 54
    )
    now = START + dt.timedelta(seconds=31)
    found = gold.latency(pairs, window_seconds=60, unanswered_seconds=5, now=now)

    def share(values: list[int], part: float) -> float:
        place = part * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (values[high] - values[low]) * (place - low)

    for row in found.collect():
        numbers = [n for n in range(60) if f"service/{n % 2}" == row.topic]
        times = sorted(took_ms[n] for n in numbers if n in took_ms)
        assert (row.requests, row.replies) == (30, len(times))
        due = [n for n in numbers if n not in took_ms and 0.5 * n < 26]
        assert row.unanswered == len(due)
        for value, part in ((row.p50_ms, 0.5), (row.p95_ms, 0.95), (row.p99_ms, 0.99)):
            assert abs(value - share(times, part)) < 1e-6
    assert found.count() == 2
    pairs.unpersist()


def test_sessions_end_where_a_sender_is_silent_for_longer_than_the_gap(
    spark: SparkSession,
) -> None:
    chance = random.Random(3)
    given = []
    offset = 0
    moments = defaultdict(list)
    for sender in ("a", "b", "c"):
        moment = START
        for _ in range(40):
            moment += dt.timedelta(seconds=chance.choice([1, 5, 9, 9.5, 10.5, 11, 40]))
            moments[sender].append(moment)
            given.append(record(offset, b"12", sender=sender, timestamp=moment))
            offset += 1
    expected = []
    for sender, times in moments.items():
        begun = last = times[0]
        count = 0
        for moment in [*times, dt.datetime.max.replace(tzinfo=dt.UTC)]:
            if (moment - last).total_seconds() > 10:
                expected.append((sender, local(begun), local(last), count, 2 * count))
                begun, count = moment, 0
            last = moment
            count += 1
    expected.sort(key=str)
    columns = ("sender", "started", "ended", "messages", "bytes")
    assert rows(gold.sessions(frame(spark, given), gap_seconds=10), *columns) == expected
    one, two, three = (
        gold.sessions(part, gap_seconds=10) for part in in_parts(spark, given, seed=2)
    )
    merged = gold.merged_sessions(three, one, gap_seconds=10)
    merged = gold.merged_sessions(two, merged, gap_seconds=10)
    assert rows(merged, *columns) == expected


def test_a_pause_of_just_the_gap_is_the_same_to_parts_and_to_the_whole(
    spark: SparkSession,
) -> None:
    given = [record(0, timestamp=START), record(1, timestamp=START + dt.timedelta(seconds=10))]
    whole = gold.sessions(frame(spark, given), gap_seconds=10)
    parts = [gold.sessions(frame(spark, [each]), gap_seconds=10) for each in given]
    assert whole.count() == gold.merged_sessions(parts[0], parts[1], gap_seconds=10).count()
