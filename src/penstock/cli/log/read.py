"""Print the messages of a log."""

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cli.common.output import quiet_pipe
from penstock.cli.common.text import shown, text_of
from penstock.cli.log.commands import ValueFormat
from penstock.cli.log.opening import Losses, find_range, open_view, topic_filter
from penstock.storage.arrow.read.records import plain_records, record_batches

__all__ = ["print_messages"]

_ROWS: Final = 4096
"""Messages that are formatted at a time."""


def print_messages(
    data: Path,
    partition: int,
    *,
    pattern: str | None,
    start: str,
    end: str | None,
    count: int | None,
    value_format: ValueFormat | None,
) -> None:
    """Print messages as lines of text, or as JSON if `value_format` is None."""
    wanted = topic_filter(pattern)
    view = open_view(data, partition)
    first, last = find_range(view, start, end)
    lines = _json_lines if value_format is None else _text_lines(value_format)
    losses = Losses()
    left = sys.maxsize if count is None else count
    with quiet_pipe():
        for batch in record_batches(
            view, start=first, end=last, wanted=wanted, damaged=losses.tell
        ):
            rows = min(len(batch), left)
            parts = (batch.slice(row, min(_ROWS, rows - row)) for row in range(0, rows, _ROWS))
            for part in plain_records(parts):
                sys.stdout.buffer.write(lines(part))
            left -= rows
            if not left:
                break
        sys.stdout.buffer.flush()
    losses.exit()


def _json_lines(batch: pa.RecordBatch) -> bytes:

    columns = {name: batch.column(name) for name in batch.schema.names}
    lists = {
        name: _times(column) if name in {"timestamp", "created"} else column.to_pylist()
        for name, column in columns.items()
    }
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return msgspec.json.Encoder().encode_lines(rows)


def _times(column: pa.Array) -> list[str | None]:
    """Return times as text, in UTC; a whole column at once is much faster."""
    texts: list[str | None] = pc.strftime(
        column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ"
    ).to_pylist()
    return texts


def _text_lines(value_format: ValueFormat) -> Callable[[pa.RecordBatch], bytes]:
    if value_format is ValueFormat.RAW:
        return lambda batch: b"".join(each + b"\n" for each in batch.column("value").to_pylist())
    spell: Callable[[bytes], str]
    match value_format:
        case ValueFormat.HEX:
            spell = bytes.hex
        case ValueFormat.BASE64:
            spell = _base64
        case _:
            spell = text_of

    def lines(batch: pa.RecordBatch) -> bytes:
        return "".join(
            f"{offset}\t{moment}\t{shown(topic)}\t{shown(sender)}\t{protocol}\t{kind}\t"
            f"{spell(value)}\n"
            for offset, moment, topic, sender, protocol, kind, value in zip(
                batch.column("offset").to_pylist(),
                _times(batch.column("timestamp")),
                *(
                    batch.column(name).to_pylist()
                    for name in ("topic", "sender", "protocol", "kind", "value")
                ),
                strict=True,
            )
        ).encode()

    return lines


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
