"""Gold on frames that stand still: what is computed, and that parts merge into the whole."""

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
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
    merged = gold.merged_traffic(gold.merged_traffic(first.unionByName(second)).unionByName(third))
    assert rows(merged, *columns) == exact
    assert {row[0] for row in merged.select("revision").collect()} == {2}
    days = {row[0] for row in merged.select("day").collect()}
    assert days == {dt.date(2026, 11, 14), dt.date(2026, 11, 15)}


# --- Requests and replies


def moved(milliseconds: float) -> dt.datetime:
    return START + dt.timedelta(milliseconds=milliseconds)


def routed(client: str, path: str) -> list[dict[str, Any]]:
    return [{"key": "to", "value": client.encode()}, {"key": "path", "value": path.encode()}]


def request(
    offset: int, by: str, number: int, milliseconds: float, *, to: str = "1000", path: str = "/p"
) -> dict[str, Any]:
    """What a broker keeps of a fleximq REQ: the headers say whom it is for."""
    return record(
        offset, b"?", protocol="fleximq", kind="request", topic="", sender=by,
        correlation=str(number), timestamp=moved(milliseconds), headers=routed(to, path),
    )  # fmt: skip


def reply(
    offset: int, to: str, number: int, milliseconds: float, *, by: str = "1000", status: int = 200
) -> dict[str, Any]:
    """What a broker keeps of a REP: the headers say who had asked."""
    return record(
        offset, b"!", protocol="fleximq", kind="reply", topic="", sender=by, status=status,
        correlation=str(number), timestamp=moved(milliseconds), headers=routed(to, ""),
    )  # fmt: skip


PAIR = ("requester", "correlation", "requested", "replied")


def pair(
    requester: str, number: int, asked_ms: float | None, answered_ms: float | None
) -> tuple[Any, ...]:
    """A row of PAIR."""
    times = (None if each is None else local(moved(each)) for each in (asked_ms, answered_ms))
    return (requester, str(number), *times)


def test_two_who_ask_with_the_same_ids_have_exchanges_of_their_own(spark: SparkSession) -> None:
    given = []
    for number in range(1, 6):  # asked in turns, answered across each other
        asked = 1000 * number
        given.append(request(10 * number, "1001", number, asked, path="/price"))
        given.append(request(10 * number + 1, "1002", number, asked + 5, path="/stock"))
        if number < 5:
            given.append(reply(10 * number + 2, "1002", number, asked + 5 + 100 * number))
        given.append(reply(10 * number + 3, "1001", number, asked + 10 * number, status=404))
    pairs = gold.exchanges(frame(spark, given)).persist()
    assert rows(pairs, *PAIR) == [
        *(pair("1001", n, 1000 * n, 1010 * n) for n in range(1, 6)),
        *(pair("1002", n, 1000 * n + 5, 1100 * n + 5) for n in range(1, 5)),
        pair("1002", 5, 5005, None),
    ]
    told = pairs.select("requester", "target", "path", "topic", "replier", "status").distinct()
    assert sorted(map(tuple, told.collect()), key=str) == [
        ("1001", "1000", "/price", "", "1000", 404),
        ("1002", "1000", "/stock", "", "1000", 200),
        ("1002", "1000", "/stock", "", None, None),
    ]
    ids = {each["offset"]: each["message_id"] for each in given}
    first = pairs.where("requester = '1002' and correlation = '1'").first()
    assert first is not None
    assert (first.request_id, first.reply_id) == (ids[11], ids[12])

    columns = ("path", "requests", "replies", "unanswered", "p50_ms", "p95_ms", "p99_ms")
    for now, unanswered in ((10_005, 0), (10_006, 1)):
        found = gold.latency(
            pairs, window_seconds=60, unanswered_seconds=5, now=moved(now)
        ).collect()
        assert sorted(tuple(round(row[c], 6) if c[0] == "p" and c != "path" else row[c]
                            for c in columns) for row in found) == [
            ("/price", 5, 5, 0, 30.0, 48.0, 49.6),  # of 10, 20, 30, 40, 50
            ("/stock", 5, 4, unanswered, 250.0, 385.0, 397.0),  # of 100, 200, 300, 400
        ]  # fmt: skip
        assert {row.topic for row in found} == {""}
    pairs.unpersist()


def test_an_id_that_is_asked_with_again_is_another_exchange(spark: SparkSession) -> None:
    given = [
        request(0, "1001", 1, 0), reply(1, "1001", 1, 10),
        request(2, "1001", 1, 10), reply(3, "1001", 1, 10),  # all within a microsecond
        request(4, "1001", 1, 5000),  # nobody answers; the broker restarts, its numbers too
        request(5, "1001", 1, 9000), reply(6, "1001", 1, 9003),
        request(7, "1001", 2, 9000),
    ]  # fmt: skip
    assert rows(gold.exchanges(frame(spark, given)), *PAIR) == sorted(
        [
            pair("1001", 1, 0, 10),
            pair("1001", 1, 10, 10),
            pair("1001", 1, 5000, None),
            pair("1001", 1, 9000, 9003),
            pair("1001", 2, 9000, None),
        ],
        key=str,
    )


def test_a_reply_that_answers_nothing_is_kept_and_not_counted(spark: SparkSession) -> None:
    two_days_ms = 2 * 86_400_000
    given = [
        reply(0, "1001", 7, 0),  # of a request that is not here
        request(1, "1001", 8, 0), reply(2, "1001", 8, 4), reply(3, "1001", 8, 9),  # twice
        request(4, "1001", 9, 0), reply(5, "1001", 9, 50_000),  # late, and still the answer
        request(6, "1001", 10, 0), reply(7, "1001", 10, two_days_ms),  # too late for any
        reply(8, "1002", 10, 1),  # for somebody else
        record(9, b"", correlation="8"), record(10, b"", kind="notify", correlation=None),
        record(11, b"", kind="reply", correlation="8", headers=None),
    ]  # fmt: skip
    pairs = gold.exchanges(frame(spark, given)).persist()
    found = rows(pairs.where("requested is not null"), *PAIR)
    assert found == sorted(
        [
            pair("1001", 8, 0, 4),
            pair("1001", 9, 0, 50_000),
            pair("1001", 10, 0, None),
        ],
        key=str,
    )
    found = rows(pairs.where("requested is null and requester is not null"), *PAIR)
    assert found == sorted(
        [
            pair("1001", 7, None, 0),
            pair("1001", 8, None, 9),
            pair("1001", 10, None, two_days_ms),
            pair("1002", 10, None, 1),
        ],
        key=str,
    )
    assert pairs.where("requester is null").count() == 1  # nobody knows who had asked
    (row,) = gold.latency(
        pairs, window_seconds=60, unanswered_seconds=5, now=moved(two_days_ms)
    ).collect()
    assert (row.requests, row.replies, row.unanswered) == (3, 2, 1)
    assert (round(row.p50_ms, 6), round(row.p99_ms, 6)) == (25_002.0, 49_500.04)
    pairs.unpersist()


def test_what_the_broker_says_in_place_of_another_is_no_answer(spark: SparkSession) -> None:
    given = [
        request(0, "1001", 1, 0), reply(1, "1001", 1, 30_000, by="1", status=504),
        request(2, "1001", 2, 0), reply(3, "1001", 2, 2),
        request(4, "1001", 3, 0, to="1"), reply(5, "1001", 3, 4, by="1", status=404),
        {**request(6, "1001", 4, 0), "headers": routed("", "/p")[1:]}, reply(7, "1001", 4, 3, by="1"),
    ]  # fmt: skip
    pairs = gold.exchanges(frame(spark, given)).persist()
    assert rows(pairs, "correlation", "target", "replier", "status") == [
        ("1", "1000", "1", 504), ("2", "1000", "1000", 200), ("3", "1", "1", 404),
        ("4", None, "1", 200),
    ]  # fmt: skip
    (row,) = gold.latency(
        pairs, window_seconds=60, unanswered_seconds=3600, now=moved(30_000)
    ).collect()
    assert (row.requests, row.replies, row.unanswered) == (4, 3, 1)
    assert round(row.p50_ms, 6) == 3.0
    pairs.unpersist()


def expected_pairs(given: Sequence[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows of PAIR, found record by record."""
    found: list[list[Any]] = []
    waiting: dict[tuple[str, str], list[Any] | None] = {}
    for each in sorted(given, key=lambda one: one["offset"]):
        moment = local(each["timestamp"])
        if each["kind"] == "request":
            key = each["sender"], each["correlation"]
            waiting[key] = row = [*key, moment, None]
            found.append(row)
        else:
            key = each["headers"][0]["value"].decode(), each["correlation"]
            row = waiting.pop(key, None)
            if row is None:
                found.append([*key, None, moment])
            else:
                row[3] = moment
    return Counter(map(tuple, found))


def test_requests_meet_their_replies_whichever_part_they_come_in(spark: SparkSession) -> None:
    chance = random.Random(11)
    given: list[dict[str, Any]] = []
    for offset in range(300):
        make = chance.choice([request, request, reply])
        who, number = f"100{chance.randrange(3)}", chance.randrange(12)
        given.append(make(offset, who, number, 500 * offset))
    exact = expected_pairs(given)
    assert {
        (row[2] is None, row[3] is None) for row in exact
    } == {(False, False), (False, True), (True, False)}  # fmt: skip

    def found(pairs: DataFrame) -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, pairs.select(*PAIR).collect()))

    assert found(gold.exchanges(frame(spark, given))) == exact
    one, two, three = (
        gold.exchanges(part, revision=n) for n, part in enumerate(in_parts(spark, given, seed=5))
    )
    merged = gold.merged_exchanges(gold.merged_exchanges(three.unionByName(one)).unionByName(two))
    assert found(merged) == exact


def test_only_exchanges_that_change_have_a_new_revision(spark: SparkSession) -> None:
    old = [request(0, "1001", 1, 0), reply(1, "1001", 1, 5), request(2, "1001", 2, 7)]
    new = [request(3, "1001", 1, 20), reply(4, "1001", 2, 21)]
    known, added = (
        gold.exchanges(frame(spark, given), revision=n) for n, given in enumerate((old, new), 1)
    )
    merged = gold.merged_exchanges(known.unionByName(added))
    assert rows(merged, *PAIR, "revision") == sorted(
        [
            (*pair("1001", 1, 0, 5), 1),
            (*pair("1001", 1, 20, None), 2),
            (*pair("1001", 2, 7, 21), 2),
        ],
        key=str,
    )
    # A reply that goes to another request, since that came in between, changes both.
    first = gold.exchanges(
        frame(spark, [request(0, "1001", 1, 0), reply(2, "1001", 1, 5)]), revision=1
    )
    second = gold.exchanges(frame(spark, [request(1, "1001", 1, 1)]), revision=2)
    assert rows(gold.merged_exchanges(first.unionByName(second)), *PAIR, "revision") == sorted(
        [(*pair("1001", 1, 0, None), 2), (*pair("1001", 1, 1, 5), 2)], key=str
    )


# --- Sessions


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
    merged = gold.merged_sessions(three.unionByName(one), gap_seconds=10)
    merged = gold.merged_sessions(two.unionByName(merged), gap_seconds=10)
    assert rows(merged, *columns) == expected


def test_a_pause_of_just_the_gap_is_the_same_to_parts_and_to_the_whole(
    spark: SparkSession,
) -> None:
    given = [record(0, timestamp=START), record(1, timestamp=START + dt.timedelta(seconds=10))]
    whole = gold.sessions(frame(spark, given), gap_seconds=10)
    parts = [gold.sessions(frame(spark, [each]), gap_seconds=10) for each in given]
    both = parts[0].unionByName(parts[1])
    assert whole.count() == gold.merged_sessions(both, gap_seconds=10).count()
