"""A live broker that serves tables, and the rows it is sent."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.flight.client import FlightClient
from penstock.flight.protocol import SINK_SCHEMA, ReadRange
from penstock.transport.addresses import Address
from tests.support.live import LiveBroker


def serve_tables(
    broker: LiveBroker, data: Path, *, address: Address | None = None, **access: Any
) -> str:
    """Let a live broker serve tables; return where."""
    place = address or Address("tcp", "127.0.0.1", 0)
    serving = broker.server.listen_flight(place, data=data, **access)
    address = asyncio.run_coroutine_threadsafe(serving, broker._loop).result(10)
    return f"grpc://{address.host}:{address.port}"


def rows(
    values: Iterable[bytes | None], *, topic: str = "table", **columns: list[Any]
) -> pa.RecordBatch:
    """Rows for a sink, all of one topic unless `topics` says otherwise."""
    found = list(values)
    topics = columns.pop("topics", [topic] * len(found))
    arrays = {"topic": topics, "value": found, **columns}
    schema = pa.schema([SINK_SCHEMA.field(name) for name in arrays])
    return pa.RecordBatch.from_pydict(arrays, schema=schema)


def table(client: FlightClient, **request: Any) -> pa.Table:
    """All that can be read, or what a request says of it."""
    bounds = client.bounds()[0]
    asked = ReadRange(**{"start": bounds.horizon, "end": bounds.end, **request})
    return pa.Table.from_batches(list(client.read(asked)), schema=client.schema(asked))
