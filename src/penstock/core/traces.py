"""Traces of sampled messages: which message of a batch is traced, and its spans in the broker.

    publisher's span ─▶ received ─┬▶ appended      the log has it in memory
                                  ├▶ delivered     written to the subscribers that keep up
                                  └▶ durable       its commit has the durability that it asks for

At most one message of a batch is traced: the first whose publisher asks for it in a header, else
the one whose offset is a multiple of `every`. So the cost is per batch; a kernel looks for the
header. A message without the context of a publisher has a trace of its own, whose id is the message
id. The id of `received` follows from the message id too: no state has to be kept for later spans.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.answers import is_safe
from penstock.core.rates import RateLimit
from penstock.limits import TRACE_HEADERS_LOOKED_MAX, TRACES_WAITING_MAX
from penstock.model import Durability, message_id
from penstock.ports import Clock, LogWriter, Receipt
from penstock.protocols import SOURCES
from penstock.tracing import (
    TRACE_HEADER,
    Span,
    SpanName,
    TraceContext,
    parse_traceparent,
    received_id,
)

__all__ = ["Traced", "Traces"]

_HEADER: Final = TRACE_HEADER.encode()
_LABELS: Final = {source.number: source.label for source in SOURCES.values()}


class Traced(NamedTuple):
    """A message of a batch that is traced."""

    row: int
    message_id: bytes
    context: TraceContext
    """Of the publisher; without one, the trace of the message itself, and no parent."""
    attributes: dict[str, str | int]


class _Waiting(NamedTuple):
    traced: Traced
    receipt: Receipt
    appended_us: int


class Traces:
    """Makes the spans of a broker; `export` takes them and must not wait. One thread owns it."""

    def __init__(
        self,
        *,
        log: LogWriter,
        topics: TopicTable,
        clock: Clock,
        export: Callable[[Span], None],
        new_id: Callable[[], int],
        every: int,
        per_second_max: int,
        from_publishers: bool = True,
    ) -> None:
        """`every` is 0 to trace only messages whose publishers ask for it."""
        self._log = log
        self._topics = topics
        self._clock = clock
        self._export = export
        self._new_id = new_id
        self._every = every
        self._from_publishers = from_publishers
        self._rate = RateLimit(per_second_max, clock.monotonic())
        self._waiting: deque[_Waiting] = deque(maxlen=TRACES_WAITING_MAX)

    # --- Sampling ---------------------------------------------------------------------------------

    def sample(
        self, batch: Batch, *, partition: int, first: int, first_row: int = 0
    ) -> Traced | None:
        """Return the message of a batch that is traced; `first` is the offset of its first row."""
        row, context = self._asked(batch, first_row)
        if context is None:
            if not self._every:
                return None
            row = first_row + -(first + first_row) % self._every
            if row >= len(batch) or batch.hidden(row):
                return None
        if not self._rate.available(self._clock.monotonic(), most=1):
            return None
        self._rate.take(1)
        offset = first + row
        identity = message_id(self._log.log_id, partition=partition, offset=offset)
        attributes: dict[str, str | int] = {
            "messaging.system": "penstock",
            "messaging.destination.name": self._topics.name(batch.topic_id(row)),
            "messaging.message.id": str(UUID(bytes=identity)),
            "messaging.batch.message_count": len(batch),
            "penstock.protocol": _LABELS.get(batch.row_protocol(row), ""),
            "penstock.partition": partition,
            "penstock.offset": offset,
        }
        own = TraceContext(int.from_bytes(identity, "big"), 0, sampled=True)
        return Traced(row, identity, context or own, attributes)

    def _asked(self, batch: Batch, first_row: int) -> tuple[int, TraceContext | None]:
        """Return the first message whose publisher asks for a trace, and its context."""
        if not self._from_publishers:
            return 0, None
        row = first_row
        while (found := batch.find_header(_HEADER, first_row=row)) is not None:
            row, text = found
            context = parse_traceparent(text)
            if context is not None and context.sampled:
                return row, context
            row += 1
            if row - first_row >= TRACE_HEADERS_LOOKED_MAX:
                break
        return 0, None

    # --- Spans ------------------------------------------------------------------------------------

    def appended(self, traced: Traced, receipt: Receipt, *, arrived_us: int, sender: str) -> int:
        """Begin the trace of a message that is in the log now; return the time, for `delivered`."""
        now_us = self._clock.now_us()
        if sender:
            traced.attributes["messaging.client.id"] = sender
        self._add(SpanName.APPENDED, traced, arrived_us, now_us)
        if receipt.durability is not Durability.MEMORY:
            self._waiting.append(_Waiting(traced, receipt, now_us))
        return now_us

    def received(self, traced: Traced, *, arrived_us: int) -> None:
        """End the part of the trace in which the batch was processed."""
        context = traced.context
        self._export(
            Span(
                SpanName.RECEIVED,
                context.trace_id,
                received_id(traced.message_id),
                context.parent_id,
                arrived_us,
                max(self._clock.now_us(), arrived_us),
                traced.attributes,
            )
        )

    def delivered(self, traced: Traced, *, start_us: int, sessions: int) -> None:
        """Add the delivery to subscribers; nothing if there were none."""
        if sessions:
            more: dict[str, str | int] = {"penstock.subscribers": sessions}
            self._add(SpanName.DELIVERED, traced, start_us, self._clock.now_us(), more)

    def settled(self) -> None:
        """Add the commits that ended; the log's commit numbers have moved."""
        waiting, now_us = self._waiting, self._clock.now_us()
        for _ in range(len(waiting)):
            each = waiting.popleft()
            safe = is_safe(each.receipt, self._log)
            if not safe and each.receipt.commit > self._log.failed_commit:
                waiting.append(each)  # those of other durabilities may have ended
                continue
            more: dict[str, str | int] = {
                "penstock.durability": each.receipt.durability.name.lower()
            }
            error = None if safe else "the commit failed"
            self._add(SpanName.DURABLE, each.traced, each.appended_us, now_us, more, error=error)

    def _add(
        self,
        name: SpanName,
        traced: Traced,
        start_us: int,
        end_us: int,
        more: dict[str, str | int] | None = None,
        *,
        error: str | None = None,
    ) -> None:
        attributes = traced.attributes if more is None else {**traced.attributes, **more}
        self._export(
            Span(
                name,
                traced.context.trace_id,
                self._new_id(),
                received_id(traced.message_id),
                start_us,
                max(end_us, start_us),  # the wall clock may be set back
                attributes,
                error,
            )
        )
