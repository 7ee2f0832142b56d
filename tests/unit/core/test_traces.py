"""Traces: at most one message of a batch, as many as a second allows, and how each span ends."""

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.traces import Traces
from penstock.model import Durability
from penstock.ports import Receipt
from penstock.protocols import PROTOCOLS
from penstock.tracing import Span, SpanName
from tests.support.agreement import kernel_scan
from tests.support.fakes import FakeClock
from tests.support.kept_log import KeptLog
from tests.support.publishes import publish

LAMAMQ = PROTOCOLS["lamamq"]
TRACES = ("4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c")


def context(trace: str, *, sampled: bool = True) -> tuple[tuple[str, bytes], ...]:
    return (("traceparent", f"00-{trace}-00f067aa0ba902b7-0{int(sampled)}".encode()),)


def batch_of(*headers: tuple[tuple[str, bytes], ...]) -> tuple[Batch, TopicTable]:
    data = b"".join(publish(LAMAMQ, "big", headers=each) for each in headers)
    batch, topics, _ = kernel_scan(LAMAMQ, data, "big")
    assert len(batch) == len(headers)
    return batch, topics


class Traced:
    """Traces of a log and a clock of the test's own, and their spans."""

    def __init__(self, topics: TopicTable, *, every: int = 0, per_second_max: int = 100) -> None:
        self.log, self.clock = KeptLog(), FakeClock()
        self.spans: list[Span] = []
        self.traces = Traces(
            log=self.log,
            topics=topics,
            clock=self.clock,
            export=self.spans.append,
            new_id=lambda: 7,
            every=every,
            per_second_max=per_second_max,
        )


def test_the_first_message_that_a_publisher_has_sampled_is_followed() -> None:
    batch, topics = batch_of(
        (),
        context(TRACES[0], sampled=False),
        (("traceparent", b"nonsense"),),
        context(TRACES[0]),
        context(TRACES[1]),
    )
    traced = Traced(topics, every=1).traces.sample(batch, partition=0, first=10)
    assert traced is not None
    assert (traced.row, traced.context.trace_id) == (3, int(TRACES[0], 16))
    assert traced.attributes["penstock.offset"] == 13


def test_without_a_context_offsets_that_are_multiples_are_followed() -> None:
    batch, topics = batch_of((), (), ())
    traces = Traced(topics, every=5).traces
    rows = {
        first: found and found.row
        for first in range(7)
        if (found := traces.sample(batch, partition=0, first=first)) or True
    }
    assert rows == {0: 0, 1: None, 2: None, 3: 2, 4: 1, 5: 0, 6: None}


def test_further_messages_of_a_second_are_not_followed() -> None:
    batch, topics = batch_of(())
    traced = Traced(topics, every=1, per_second_max=2)

    def sampled() -> int:
        found = (traced.traces.sample(batch, partition=0, first=0) for _ in range(5))
        return sum(each is not None for each in found)

    assert sampled() == 2
    assert sampled() == 0
    traced.clock.seconds += 1
    assert sampled() == 2


def test_a_commit_ends_with_the_durability_of_its_message_or_fails() -> None:
    batch, topics = batch_of(())
    traced = Traced(topics, every=1)
    for commit, durability in enumerate(Durability):
        found = traced.traces.sample(batch, partition=0, first=0)
        assert found is not None
        receipt = Receipt(0, commit, durability)
        traced.traces.appended(found, receipt, arrived_us=0, sender="c")
    traced.spans.clear()
    traced.traces.settled()
    assert traced.spans == []
    traced.clock.seconds += 2
    traced.log.written_commit = 1
    traced.traces.settled()
    traced.log.failed_commit = 2
    traced.traces.settled()
    assert [(each.name, each.attributes["penstock.durability"]) for each in traced.spans] == [
        (SpanName.DURABLE, "os"),
        (SpanName.DURABLE, "fsync"),
    ]
    assert [each.error for each in traced.spans] == [None, "the commit failed"]
    assert traced.spans[0].end_us - traced.spans[0].start_us == 2_000_000
    traced.traces.settled()
    assert len(traced.spans) == 2


def test_a_clock_that_is_set_back_makes_no_span_of_negative_length() -> None:
    batch, topics = batch_of(())
    traced = Traced(topics, every=1)
    found = traced.traces.sample(batch, partition=0, first=0)
    assert found is not None
    later = traced.clock.now_us() + 5
    traced.traces.received(found, arrived_us=later)
    traced.traces.delivered(found, start_us=later, sessions=1)
    traced.traces.delivered(found, start_us=later, sessions=0)
    assert [(each.start_us, each.end_us) for each in traced.spans] == [(later, later)] * 2
