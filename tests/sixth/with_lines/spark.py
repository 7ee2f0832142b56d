"""Lines in Spark: rows of the log, and captures."""

import asyncio
from pathlib import Path

import penstock
from penstock.spark import session
from penstock.spark.captures import decode_captures, read_captures
from tests.support.live import LiveBroker


def test_rows_and_captures(tmp_path: Path) -> None:
    async def publish() -> None:
        with LiveBroker(data=tmp_path / "data") as broker:
            at = f"tcp://{broker.address[0]}:{broker.address[1]}"
            async with penstock.connect(at, protocol="lines", name="me") as client:
                await client.publish("spark/lines", b"kept")

    asyncio.run(publish())
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "one.lines.c2s.bin").write_bytes(b"hello me\npub a/b 3\n1 2\n")
    (captures / "two.auto.c2s.bin").write_bytes(b"hello you\npub c 1\nx\n")
    spark = session("lines")
    try:
        rows = spark.read.format("penstock").load(str(tmp_path / "data")).collect()
        assert [(row.protocol, row.topic, bytes(row.value)) for row in rows] == [
            ("lines", "spark/lines", b"kept")
        ]
        decoded = decode_captures(read_captures(spark, str(captures)))
        found = [(row.protocol, row.topic, bytes(row.value)) for row in decoded.collect()]
        assert sorted(found) == [("lines", "a/b", b"1 2"), ("lines", "c", b"x")]
    finally:
        spark.stop()
