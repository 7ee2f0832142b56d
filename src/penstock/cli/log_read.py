"""`penstock log read`: the messages of a log."""

import base64
import enum
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.log_options import (
    DATA_DEFAULT,
    Data,
    From,
    Losses,
    Partition,
    Pattern,
    To,
    find_range,
    open_view,
    quiet_pipe,
    topic_filter,
)
from penstock.cli.log_text import shown, text_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ValueFormat", "read"]

_ROWS: Final = 4096
"""Messages that are made into text at a time."""


class ValueFormat(enum.StrEnum):
    """How values are printed."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"


def read(
    pattern: Pattern = None,
    *,
    data: Data = DATA_DEFAULT,
    partition: Partition = 0,
    start: From = "earliest",
    end: To = None,
    count: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="At most so many messages.", show_default=False),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one object a line, with all columns; bytes in base64."),
    ] = False,
    value: Annotated[
        ValueFormat | None,
        typer.Option(
            help="How values are printed; raw is the bytes alone, with a newline behind each.",
            show_default="text",
        ),
    ] = None,
) -> None:
    """Print messages: offset, time, topic, sender, protocol, kind and value, with tabs between."""
    if json and value not in {None, ValueFormat.BASE64}:
        raise typer.BadParameter("--json has values in base64.", param_hint="--value")
    wanted = topic_filter(pattern)
    view = open_view(data, partition)
    first, last = find_range(view, start, end)
    from penstock.storage.arrow.read.records import plain_records, record_batches  # noqa: PLC0415

    lines = _json_lines if json else _text_lines(value or ValueFormat.TEXT)
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


def _json_lines(batch: "pa.RecordBatch") -> bytes:
    import msgspec  # noqa: PLC0415

    columns = {name: batch.column(name) for name in batch.schema.names}
    lists = {
        name: _times(column) if name in {"timestamp", "created"} else column.to_pylist()
        for name, column in columns.items()
    }
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return msgspec.json.Encoder().encode_lines(rows)


def _times(column: "pa.Array") -> list[str | None]:
    """Return times as text, in UTC: much faster in one go."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    texts: list[str | None] = pc.strftime(
        column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ"
    ).to_pylist()
    return texts


def _text_lines(value_format: ValueFormat) -> "Callable[[pa.RecordBatch], bytes]":
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

    def lines(batch: "pa.RecordBatch") -> bytes:
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
