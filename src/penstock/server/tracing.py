"""Start of traces, if the configuration has a collector for them."""

from typing import TYPE_CHECKING

from penstock.core.broker import Broker
from penstock.server.config import TracingConfig

if TYPE_CHECKING:
    from penstock.tracing.otlp import SpanSender

__all__ = ["start_tracing"]


def start_tracing(config: TracingConfig, broker: Broker) -> "SpanSender | None":
    """Let a broker trace sampled messages; return what sends their spans, None if traces are off.

    The configuration was checked: the extra `tracing` is installed.
    """
    if not config.endpoint:
        return None
    # Only a broker with traces needs the SDK, which is slow to import.
    from penstock.tracing.otlp import SpanSender, new_span_id  # noqa: PLC0415

    sender = SpanSender(config.endpoint, service=config.service)
    broker.trace(
        sender.add,
        new_id=new_span_id,
        every=config.every,
        per_second_max=config.traces_per_second_max,
        from_publishers=config.publishers,
    )
    return sender
