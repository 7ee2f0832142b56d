"""Traces of single messages: W3C trace context, spans, and their export by OTLP over HTTP."""

from penstock.tracing.availability import is_installed
from penstock.tracing.context import TRACE_HEADER, TraceContext, parse_traceparent
from penstock.tracing.span import Span, SpanName, received_id

__all__ = [
    "TRACE_HEADER",
    "Span",
    "SpanName",
    "TraceContext",
    "is_installed",
    "parse_traceparent",
    "received_id",
]
