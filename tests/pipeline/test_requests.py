"""Requests, replies and notices of a real broker are in bronze, and gold tells who asked what."""

import asyncio
import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.client import Refused, Request
from penstock.model import Kind
from penstock.pipeline.config import GoldConfig, PipelineConfig, SourceConfig
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.warehouse import Warehouse
from penstock.ports import Record
from penstock.protocols.fleximq import FLEXIMQ
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.read.records import record_batches
from tests.support.live import LiveBroker
from tests.support.written_log import WrittenLog, message

SECONDS_MAX = 10.0
ASKED = {"/price": 3, "/stock": 5}
KINDS = {"publish": 2, "request": 9, "reply": 9, "notify": 1, "broadcast": 1}
"""What `talk` leaves in the log; what is asked of who leaves is answered by the broker."""


async def talk(url: str) -> list[int]:
    """Let two clients ask a third one, by the ids that the client library gives; say all else too.

    Return the numbers of the two.
    """

    async def same(request: Request) -> object:
        return request.payload

    async with (
        penstock.connect(url, protocol="fleximq") as service,
        penstock.connect(url, protocol="fleximq") as one,
        penstock.connect(url, protocol="fleximq") as other,
    ):
        service.serve("/price", same)
        service.serve("/stock", same)
        asked, target = asyncio.Event(), service.identity or 0
        for client, path in ((one, "/price"), (other, "/stock")):
            for number in range(ASKED[path]):
                assert (await client.request(target, path, number)).payload == number
            await client.publish("shop/till", payload=path)
        await one.notify({target: "/closing"}, "soon")
        await one.broadcast("now")

        async with penstock.connect(url, protocol="fleximq") as leaver:

            async def never(_: Request) -> object:
                asked.set()
                return await asyncio.Event().wait()

            leaver.serve("/price", never)
            waiting = asyncio.create_task(one.request(leaver.identity or 0, "/price"))
            await asyncio.wait_for(asked.wait(), SECONDS_MAX)
        with pytest.raises(Refused):
            await asyncio.wait_for(waiting, SECONDS_MAX)
        await one.ping()
        return [one.identity or 0, other.identity or 0]


def kinds_of(data: Path) -> Counter[str]:
    """The kinds of all that a log holds."""
    return Counter(
        kind
        for batch in record_batches(LogFollower(data))
        for kind in batch.column("kind").to_pylist()
    )


def test_every_kind_of_message_is_in_bronze_and_each_asker_has_its_exchanges(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with LiveBroker(data=data) as broker:
        host, port = broker.address
        one, other = map(str, asyncio.run(talk(f"tcp://{host}:{port}")))
    assert kinds_of(data) == KINDS
    config = PipelineConfig(
        source=SourceConfig(path=str(data)), gold=GoldConfig(latency_window_seconds=86_400)
    )
    Pipeline(spark, warehouse, config).run_once()

    tables = warehouse.tables()
    bronze = tables["bronze"].read(spark).select("kind").collect()
    assert Counter(row.kind for row in bronze) == KINDS
    pairs = tables["exchanges"].read(spark).collect()
    assert {(row.requester, row.path) for row in pairs} == {(one, "/price"), (other, "/stock")}
    assert len({row.correlation for row in pairs}) < len(pairs) == KINDS["request"]
    assert all(row.requested <= row.replied for row in pairs)
    found = {row.path: row for row in tables["latency"].read(spark).collect()}
    assert {
        path: (row.requests, row.replies, row.unanswered) for path, row in found.items()
    } == {"/price": (4, 3, 1), "/stock": (5, 5, 0)}  # fmt: skip
    assert all(0 < row.p50_ms <= row.p95_ms <= row.p99_ms for row in found.values())
    traffic = tables["traffic"].read(spark).collect()
    assert sum(row.messages for row in traffic) == sum(KINDS.values())


def test_other_subscriptions_leave_out_what_has_no_topic(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(message("shop/till", b"1", 0), asked(1), message("a", b"2", 2))
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path), subscribe="shop/#, a"),
        gold=GoldConfig(enabled=False),
    )
    Pipeline(spark, warehouse, config).run_once()
    found = warehouse.tables()["bronze"].read(spark).select("topic").collect()
    assert [row.topic for row in found] == ["shop/till", "a"]


NOON_US = int(dt.datetime(2026, 11, 14, 12, tzinfo=dt.UTC).timestamp()) * 1_000_000
HOUR_US = 3_600_000_000
TIMES = ("requested", "replied")


def asked(hours: float, number: int = 1) -> Record:
    """A request of client 1001, so long after noon."""
    return message(
        "", b"?", protocol=FLEXIMQ, kind=Kind.REQUEST, sender_name="1001", private=True,
        correlation=str(number), headers=(("to", b"1000"), ("path", b"/price")),
        timestamp_us=NOON_US + int(hours * HOUR_US),
    )  # fmt: skip


def answered(hours: float, number: int = 1) -> Record:
    return message(
        "", b"!", protocol=FLEXIMQ, kind=Kind.REPLY, sender_name="1000", private=True,
        correlation=str(number), headers=(("to", b"1001"), ("path", b"")), status=200,
        timestamp_us=NOON_US + int(hours * HOUR_US),
    )  # fmt: skip


def test_a_reply_finds_its_request_in_another_run_and_on_the_day_before(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    config = PipelineConfig(source=SourceConfig(path=str(tmp_path)))

    def run() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        Pipeline(spark, warehouse, config).run_once()
        tables = warehouse.tables()
        hours = [f"(unix_micros({each}) - {NOON_US}) / {HOUR_US}D" for each in TIMES]
        pairs = tables["exchanges"].read(spark).selectExpr("correlation", *hours, "revision")
        rows = tables["latency"].read(spark).orderBy("window_start").collect()
        return (
            sorted(map(tuple, pairs.collect()), key=str),
            [(row.path, row.requests, row.replies, row.unanswered, row.p50_ms) for row in rows],
        )

    with WrittenLog(tmp_path) as log:
        log.put(asked(1), answered(2), asked(11.5), asked(11.5, number=2))
        pairs, latency = run()
        assert pairs == [("1", 1.0, 2.0, 1), ("1", 11.5, None, 1), ("2", 11.5, None, 1)]
        hour_ms = 3_600_000.0
        assert latency == [("/price", 1, 1, 0, hour_ms), ("/price", 2, 0, 0, None)]
        log.put(answered(12.5), asked(13))  # after midnight
        pairs, latency = run()
        assert pairs == [
            ("1", 1.0, 2.0, 1), ("1", 11.5, 12.5, 2), ("1", 13.0, None, 2), ("2", 11.5, None, 1),
        ]  # fmt: skip
        assert latency == [
            ("/price", 1, 1, 0, hour_ms), ("/price", 2, 1, 1, hour_ms), ("/price", 1, 0, 0, None),
        ]  # fmt: skip
