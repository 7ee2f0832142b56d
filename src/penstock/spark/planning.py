"""Planning of a read: from options to offsets, and from ranges of offsets to tasks."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from penstock.limits import SPARK_TASKS_MAX
from penstock.ports.selection import Selection
from penstock.spark.errors import InvalidOption
from penstock.spark.log_source import LogBounds, LogSource, Losses, Range, ReadRequest, Task
from penstock.spark.offset_spec import NamedOffset, OffsetSpec
from penstock.spark.options import ReadOptions
from penstock.spark.parallelism import TaskLimit
from penstock.spark.topic_ranges import Section, SelectedTask, TopicOffsets

__all__ = ["bounds_to_read", "plan_tasks", "resolve_offsets"]


def bounds_to_read(source: LogSource, options: ReadOptions) -> dict[int, LogBounds]:
    """Return the bounds of the partitions to read; raise InvalidOption if one does not exist."""
    found = source.bounds()
    if options.partitions is None:
        return found
    _check_partitions("assign", options.partitions, source, found)
    return {number: each for number, each in found.items() if number in options.partitions}


def _check_partitions(
    option: str, numbers: set[int] | frozenset[int], source: LogSource, known: Mapping[int, object]
) -> None:
    unknown = sorted(numbers - set(known))
    if unknown:
        allowed = f"partitions {', '.join(map(str, sorted(known)))}"
        raise InvalidOption(option, f"{source.name} has no {unknown[0]}", allowed)


# --- Offsets


def resolve_offsets(
    source: LogSource, spec: OffsetSpec, bounds: Mapping[int, LogBounds], selection: Selection
) -> dict[int, TopicOffsets]:
    """Return the offsets of each partition for a spec; raise InvalidOption."""
    _check_partitions(spec.option, spec.partitions, source, bounds)
    return {
        partition: _partition_offsets(source, spec, partition, bound, selection)
        for partition, bound in bounds.items()
    }


def _partition_offsets(
    source: LogSource, spec: OffsetSpec, partition: int, bound: LogBounds, selection: Selection
) -> TopicOffsets:
    if spec.timestamp_us is not None:
        offset = _at_time(source, partition, bound, spec.timestamp_us)
        if spec.must_match:
            _check_match(source, spec, Range(partition, offset, bound.end, bound.log), selection)
        return TopicOffsets(offset)
    topics: dict[str, int] = {}
    for topic, offsets in spec.topics.items():
        if partition in offsets:
            topics[topic] = _offset(spec, offsets[partition], partition, bound)
    for topic, times in spec.topic_timestamps_us.items():
        if partition in times:
            topics[topic] = offset = _at_time(source, partition, bound, times[partition])
            if spec.must_match:
                span = Range(partition, offset, bound.end, bound.log)
                _check_match(source, spec, span, Selection(topics=frozenset({topic})))
    if topics and selection.is_by_name and topics.keys() >= (selection.topics or set()):
        return TopicOffsets(min(topics.values()), topics)  # there are no others
    others = _offset(spec, spec.offsets.get(partition, spec.named), partition, bound)
    return TopicOffsets(others, topics)


def _offset(spec: OffsetSpec, wanted: int | NamedOffset, partition: int, bound: LogBounds) -> int:
    if isinstance(wanted, NamedOffset):
        return bound.horizon if wanted is NamedOffset.EARLIEST else bound.end
    if wanted > bound.end:
        problem = f"{wanted} of partition {partition} is after the end of the log"
        raise InvalidOption(spec.option, problem, f"offsets up to {bound.end}")
    return wanted


def _at_time(source: LogSource, partition: int, bound: LogBounds, timestamp_us: int) -> int:
    return min(max(source.offset_at(partition, timestamp_us), bound.horizon), bound.end)


def _check_match(source: LogSource, spec: OffsetSpec, span: Range, selection: Selection) -> None:
    """Raise InvalidOption unless each topic has a message in a range, or patterns have one."""
    topics = sorted(selection.topics or ())
    wanted = {f"of {each!r} ": Selection(topics=frozenset({each})) for each in topics}
    if not selection.is_by_name:
        wanted[""] = selection
    for whose, each in wanted.items():
        if span.start >= span.end or not source.match(span, each, rows_max=1).rows:
            problem = f"there is no message {whose}at or after the time"
            allowed = "an earlier time, or startingOffsetsByTimestampStrategy latest"
            raise InvalidOption(spec.option, problem, allowed)


# --- Tasks


def plan_tasks(
    source: LogSource,
    parts: Sequence[Section],
    request: ReadRequest,
    *,
    options: ReadOptions,
    losses: Losses,
) -> list[Task]:
    """Divide sections into tasks; raise InvalidOption, RangeLost or LogDamaged."""
    by_selection: dict[Selection, list[Range]] = {}
    for part in parts:
        span = losses.kept(part.span, source.kept(part.span, part.selection))
        if span.start < span.end:
            by_selection.setdefault(part.selection, []).append(span)
    total = sum(_length(spans) for spans in by_selection.values())
    found: list[Task] = []
    for selection, whole in by_selection.items():
        spans = whole
        if options.records_max is not None:
            spans = list(_by_records(source, whole, selection, options.records_max))
        limit = options.task_limit
        if limit.tasks is not None and len(by_selection) > 1:
            limit = TaskLimit(max(1, round(limit.tasks * _length(whole) / total)), limit.cores)
        narrowed = dataclasses.replace(request, selection=selection)
        tasks = source.tasks(spans, narrowed, limit=limit, losses=losses)
        if selection != request.selection:
            tasks = [SelectedTask(each, selection) for each in tasks]
        found += tasks
    return found


def _length(spans: Sequence[Range]) -> int:
    return sum(span.end - span.start for span in spans)


def _by_records(
    source: LogSource, spans: Sequence[Range], selection: Selection, records_max: int
) -> Iterator[Range]:
    """Yield parts of ranges with at most `records_max` selected records; raise InvalidOption."""
    count = 0
    for span in spans:
        for part in _parts(source, span, selection, records_max):
            count += 1
            if count > SPARK_TASKS_MAX:
                problem = f"with {records_max} there are more than {SPARK_TASKS_MAX} tasks"
                raise InvalidOption("maxRecordsPerPartition", problem, "a larger number")
            yield part


def _parts(
    source: LogSource, span: Range, selection: Selection, records_max: int
) -> Iterator[Range]:
    start = span.start
    while start < span.end:
        if selection.columns:
            found = source.match(span._replace(start=start), selection, rows_max=records_max)
            if not found.rows:
                return
            first, end = max(start, found.first), found.end
        else:
            first, end = start, min(start + records_max, span.end)
        yield span._replace(start=first, end=end)
        start = end
