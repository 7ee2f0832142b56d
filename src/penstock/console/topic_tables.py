"""Topics as tables for queries: their newest messages, read by the broker's API.

The broker's rules decide what a visitor may read. A table has the newest messages up to limits of
rows, bytes and time, because they are copied to this process for each query.
"""

import base64
import dataclasses
import time
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.console.api import BrokerApi
from penstock.console.limits import (
    SQL_MESSAGES_MAX,
    SQL_MESSAGES_PAGE,
    SQL_TOPIC_BYTES_MAX,
    SQL_TOPIC_SECONDS_MAX,
    SQL_VALUE_BYTES,
)
from penstock.console.payloads import best_form, payload_text

__all__ = ["MESSAGE_COLUMNS", "TopicTable", "read_topic"]

_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("protocol", pa.string()),
        ("kind", pa.string()),
        ("sender", pa.string()),
        ("bytes", pa.int64()),
        ("text", pa.string()),
        ("value", pa.binary()),
    ]
)
MESSAGE_COLUMNS = tuple(_SCHEMA.names)
"""The columns of a topic. `text` is the value as text, of MessagePack as JSON; else it is null."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicTable:
    """The newest messages of a topic; `whole` says whether these are all that are kept."""

    data: pa.Table
    whole: bool


async def read_topic(api: BrokerApi, topic: str) -> TopicTable:
    """Read the newest messages of a topic or pattern; raise ApiRefused or BrokerAway."""
    pages: list[list[dict[str, Any]]] = []
    rows = size = 0
    before: int | None = None
    ends = time.monotonic() + SQL_TOPIC_SECONDS_MAX
    while True:
        query = {
            "topic": topic,
            "before": before,
            "limit": min(SQL_MESSAGES_PAGE, SQL_MESSAGES_MAX - rows),
            "value_bytes": SQL_VALUE_BYTES,
        }
        found = await api.get("/api/messages", query)
        pages.append(found["messages"])
        rows += len(found["messages"])
        size += sum(len(each["value"]) for each in found["messages"])
        before = found["previous"]
        if before is None:
            break
        if rows >= SQL_MESSAGES_MAX or size >= SQL_TOPIC_BYTES_MAX or time.monotonic() > ends:
            break
    messages = [_row(each) for page in reversed(pages) for each in page]
    return TopicTable(pa.Table.from_pylist(messages, schema=_SCHEMA), whole=before is None)


def _row(message: dict[str, Any]) -> dict[str, Any]:
    value = base64.b64decode(message["value"])
    form = best_form(value)
    return {
        "offset": message["offset"],
        "time": datetime.fromisoformat(message["time"]),
        "topic": message["topic"],
        "protocol": message["protocol"],
        "kind": message["kind"],
        "sender": message["sender"],
        "bytes": message["bytes"],
        "text": None if form == "hex" else payload_text(value, form),
        "value": value,
    }
