"""A sealed segment is a plain Arrow stream: others open it with no help from us."""

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from penstock.model import Kind
from penstock.protocols import PROTOCOLS
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.schema import SCHEMA
from tests.support.written_log import START_US, WrittenLog, message

ROWS = 5


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row groups with other topics and senders each, so that every dictionary is another."""
    with WrittenLog(tmp_path_factory.mktemp("data")) as log:
        for row_group in range(4):
            log.put(
                *(
                    message(
                        f"topic/{row_group}/{row % 3}", b"%d" % row, row, sender_name=f"{row_group}-{row % 2}",
                        protocol=PROTOCOLS.numbered(1 + row_group), kind=Kind(row), status=row if row % 2 else None,
                        headers=(("h", b"%d" % row_group),) * row,
                    )
                    for row in range(ROWS)
                )
            )  # fmt: skip
    (path,) = log.segments()
    return path


def expected() -> list[dict[str, Any]]:
    """What was put in, but for what the log itself gives."""
    return [
        {
            "value": b"%d" % row,
            "topic": f"topic/{row_group}/{row % 3}",
            "offset": ROWS * row_group + row,
            "timestamp": START_US + 1000 * row,
            "headers": [{"key": "h", "value": b"%d" % row_group}] * row,
            "protocol": ["rheos1", "rheos2", "fleximq", "herald"][row_group],
            "kind": ["publish", "request", "reply", "notify", "broadcast"][row],
            "sender": f"{row_group}-{row % 2}",
            "status": row if row % 2 else None,
        }
        for row_group in range(4)
        for row in range(ROWS)
    ]


def rows(table: pa.Table) -> list[dict[str, Any]]:
    table = table.select(list(expected()[0]))
    number = table.schema.get_field_index("timestamp")
    times = table.column(number).cast(pa.timestamp("us")).cast(pa.int64())
    return table.set_column(number, "timestamp", times).to_pylist()


def test_pyarrow_opens_it(segment: Path) -> None:
    with pa.ipc.open_stream(segment) as reader:
        table = reader.read_all()
    table.validate(full=True)
    assert table.schema.equals(SCHEMA)
    assert rows(table) == expected()


def test_polars_opens_it(segment: Path) -> None:
    frame = pl.read_ipc_stream(segment)
    assert frame.columns == SCHEMA.names
    strings = frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert rows(strings.to_arrow()) == expected()


def test_duckdb_opens_it(segment: Path) -> None:
    messages = pa.ipc.open_stream(segment)
    table = duckdb.from_arrow(messages).order('"offset"').to_arrow_table()
    plain = table.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA)
    assert rows(plain) == expected()


def test_all_of_them_give_the_same_message_ids(segment: Path) -> None:
    with pa.ipc.open_stream(segment) as reader:
        ids = reader.read_all().column("message_id").to_pylist()
    assert len(set(ids)) == len(ids) == 4 * ROWS
    assert pl.read_ipc_stream(segment)["message_id"].to_list() == ids
    messages = pa.ipc.open_stream(segment)
    found = duckdb.from_arrow(messages).order('"offset"').project("message_id").fetchall()
    assert [identifier for (identifier,) in found] == ids
