"""Write a golden log: `python -m tests.golden.write FOLDER`.

The log has a message of every protocol, kind, form and source. Run it once for each version of the
log format, with the release that introduces it, and keep the result: later versions must read it.
"""

import asyncio
import json
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
import uvloop

import penstock
from penstock.client import Request
from penstock.flight.client import FlightClient
from penstock.flight.protocol import SINK_SCHEMA
from penstock.server.server import Server
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from penstock.transport.addresses import Address
from tests.golden.rows import row_of

VALUES = (b"a value", b"", bytes(range(256)))


async def publish(url: str) -> None:
    """Publish in all five protocols."""
    for protocol in ("rheos1", "rheos2"):
        async with penstock.connect(url, protocol=protocol, name=f"golden-{protocol}") as client:
            await client.create_topic(f"golden/{protocol}")
            for value in VALUES:
                await client.publish(f"golden/{protocol}", value)
    async with penstock.connect(url, protocol="herald", name="golden-herald") as client:
        await client.publish(7, b"value of herald")
        await client.publish(255, b"\x00")
        await client.ping()
    async with penstock.connect(url, protocol="lamamq", name="golden-lamamq") as client:
        await client.publish("golden/lamamq", b"value of lamamq")
        await client.publish(
            "golden/lamamq", b"with headers", headers={"a": b"1", "b": "zwei \u00fc"}
        )
        await client.publish("golden/lamamq", b"")
    async with (
        penstock.connect(url, protocol="fleximq") as one,
        penstock.connect(url, protocol="fleximq") as other,
    ):

        async def answer(request: Request) -> object:
            return {"got": request.payload}

        target = other.identity or 0
        other.serve("/golden", answer)
        async with await other.subscribe("golden/fleximq"):
            await one.publish("golden/fleximq", b"bin value")
            await one.publish("golden/fleximq", payload="a string")
            await one.publish("golden/fleximq", payload={"map": [1, 2.5, None, True]})
            await one.publish("golden/fleximq", b"with status", status=207)
            await one.publish("golden/fleximq", b"routed", routing={target: "/routed"})
            await one.ping()
        await one.request(target, "/golden", {"question": 1})
        await one.notify({target: "/note"}, "noted")
        await one.broadcast("to all", status=200)
        await one.ping()


def sink(endpoint: str) -> None:
    """Publish rows of a table."""
    names = ("topic", "value", "key", "headers")
    headers = [{"key": "h", "value": b"1"}]
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "topic": "golden/flight",
                "value": b"value of flight",
                "key": b"k",
                "headers": headers,
            },
            {"topic": "golden/flight", "value": b"", "key": None, "headers": []},
        ],
        schema=pa.schema([SINK_SCHEMA.field(name) for name in names]),
    )
    with FlightClient(endpoint) as client:
        client.stage([rows], writer="golden", epoch=0, partition=0)
        client.publish_epoch("golden", 0, [0])


def post(url: str) -> None:
    """Publish by HTTP."""
    message = {"topic": "golden/http", "text": "value of http", "headers": {"h": "1"}, "key": "k"}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/api/publish",
        data=json.dumps(message).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        answer.read()


async def write(data: Path) -> None:
    """Write the log and its rows."""
    server = Server(storage=ArrowLog(data))
    await server.start()
    host, port = await server.listen_tcp()
    http = await server.listen(Address("ws", "127.0.0.1", 0))
    flight = await server.listen_flight(Address("tcp", "127.0.0.1", 0), data=data)
    await publish(f"tcp://{host}:{port}")
    await asyncio.to_thread(sink, f"grpc://{flight.host}:{flight.port}")
    await asyncio.to_thread(post, f"http://{http.host}:{http.port}")
    await server.stop()
    batches = plain_records(record_batches(LogView(data)))
    rows = [row_of(row) for batch in batches for row in batch.to_pylist()]
    (data / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    uvloop.run(write(Path(sys.argv[1])))
