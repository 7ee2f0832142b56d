"""Spans of the messages that a task reads, if their publishers have sampled them.

A span lasts from the start of the task until Spark has taken all its rows. Its parent is the span
`received` of the broker, whose id follows from the message id. A batch of rows is searched for the
header by Arrow, at once.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.limits import TRACED_PER_TASK_MAX
from penstock.ports.selection import Selection
from penstock.spark.log_source import TRACE_COLUMNS
from penstock.tracing import (
    TRACE_HEADER,
    Span,
    SpanName,
    TraceContext,
    parse_traceparent,
    received_id,
)

__all__ = ["traced_batches"]

log = structlog.get_logger("penstock.spark")


class _Message(NamedTuple):
    """A sampled message: the context of its publisher, and its row."""

    context: TraceContext
    row: dict[str, Any]


def traced_batches(
    batches: Iterable[pa.RecordBatch], selection: Selection, collector: str
) -> Iterator[pa.RecordBatch]:
    """Yield batches, then send the spans of the sampled messages among their selected rows."""
    began_us = time.time_ns() // 1000
    found: list[_Message] = []
    rows = 0
    for batch in batches:
        rows += len(batch)
        if len(found) < TRACED_PER_TASK_MAX:
            found += _sampled(batch, selection, most=TRACED_PER_TASK_MAX - len(found))
        yield batch
    if found:
        _send(found, collector, began_us, rows)


def _sampled(batch: pa.RecordBatch, selection: Selection, *, most: int) -> list[_Message]:
    """Return the first sampled messages of a batch."""
    headers = batch.column("headers")
    if not len(headers.flatten()):
        return []
    is_context = pc.equal(headers.flatten().field("key"), TRACE_HEADER)
    places = pc.list_parent_indices(headers).filter(is_context).unique()
    if not len(places):
        return []
    chosen = selection.of(batch.take(places))
    found: list[_Message] = []
    for row in chosen.select(list(TRACE_COLUMNS)).to_pylist():
        texts = (each["value"] for each in row["headers"] if each["key"] == TRACE_HEADER)
        context = parse_traceparent(next(texts) or b"")
        if context is not None and context.sampled and len(found) < most:
            found.append(_Message(context, row))
    return found


def _send(found: list[_Message], collector: str, began_us: int, rows: int) -> None:
    """Send a span for each message; a failure is logged, the query goes on."""
    try:
        from penstock.tracing.otlp import new_span_id, send_spans  # noqa: PLC0415
    except ModuleNotFoundError as error:
        log.warning("spans not exported", reason=f"{error.name} is not installed on this executor")
        return
    end_us = time.time_ns() // 1000
    spans = [
        Span(
            SpanName.SPARK_BATCH,
            context.trace_id,
            new_span_id(),
            received_id(UUID(row["message_id"]).bytes),
            began_us,
            end_us,
            {
                "messaging.system": "penstock",
                "messaging.destination.name": row["topic"] or "",
                "messaging.message.id": row["message_id"],
                "messaging.batch.message_count": rows,
                "penstock.partition": row["partition"],
                "penstock.offset": row["offset"],
            },
        )
        for context, row in found
    ]
    send_spans(collector, spans, service="penstock-spark")
