"""Export of spans by OTLP over HTTP, with the SDK of OpenTelemetry (the extra `tracing`).

A thread of the SDK sends spans in batches. A queue that is full drops spans.
"""

import logging
import secrets
from collections.abc import Iterable
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

import penstock
from penstock.limits import TRACE_EXPORT_SECONDS, TRACE_EXPORT_SECONDS_MAX, TRACE_SPANS_WAITING_MAX
from penstock.tracing.span import Span, SpanName

__all__ = ["SpanSender", "new_span_id", "send_spans"]

log = structlog.get_logger("penstock.tracing")

_SCOPE: Final = InstrumentationScope("penstock", penstock.__version__)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_KINDS: Final = {
    SpanName.RECEIVED: SpanKind.SERVER,
    SpanName.DELIVERED: SpanKind.PRODUCER,
    SpanName.SPARK_BATCH: SpanKind.CONSUMER,
}
"""Spans of other names are internal."""


class _Events(logging.Handler):
    """Logs warnings of the SDK as events."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        log.warning("spans not exported", reason=record.getMessage())


def _log_failures() -> None:
    library = logging.getLogger("opentelemetry")
    if not any(isinstance(each, _Events) for each in library.handlers):
        library.addHandler(_Events(logging.WARNING))
        library.propagate = False


def new_span_id() -> int:
    """Return a random id."""
    return secrets.randbits(64) or 1


class SpanSender:
    """Sends spans to a collector from a thread of its own; `add` never waits."""

    def __init__(self, endpoint: str, *, service: str) -> None:
        """`endpoint` is the whole URL, such as `http://127.0.0.1:4318/v1/traces`."""
        _log_failures()
        self._resource = _resource(service)
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=endpoint, timeout=TRACE_EXPORT_SECONDS_MAX),
            max_queue_size=TRACE_SPANS_WAITING_MAX,
            schedule_delay_millis=1000 * TRACE_EXPORT_SECONDS,
            max_export_batch_size=TRACE_SPANS_WAITING_MAX,
        )

    def add(self, span: Span) -> None:
        """Send a span soon."""
        self._processor.on_end(_readable(span, self._resource))

    def close(self) -> None:
        """Send what is left; it takes TRACE_EXPORT_SECONDS_MAX at most."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def send_spans(endpoint: str, spans: Iterable[Span], *, service: str) -> bool:
    """Send spans now; return whether the collector took them. It never raises for the network."""
    _log_failures()
    resource = _resource(service)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TRACE_EXPORT_SECONDS_MAX)
    try:
        result = exporter.export([_readable(each, resource) for each in spans])
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]
    return result is SpanExportResult.SUCCESS


def _resource(service: str) -> Resource:
    # OTEL_RESOURCE_ATTRIBUTES may add to it.
    return Resource.create({"service.name": service, "service.version": penstock.__version__})


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span as the SDK has it: ids are ours, so none is drawn by a tracer."""
    parent = None
    if span.parent_id:
        parent = SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED)
    return ReadableSpan(
        name=str(span.name),
        context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=_SAMPLED),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        kind=_KINDS.get(span.name, SpanKind.INTERNAL),
        status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR, span.error),
        start_time=1000 * span.start_us,
        end_time=1000 * span.end_us,
        instrumentation_scope=_SCOPE,
    )
