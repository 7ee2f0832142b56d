"""Metrics in Prometheus text format, collected when they are requested.

Clients are not labels, nor are topics but those in which consumer groups are behind. Labels have
few values: the number of series is bounded.
"""

import asyncio
import heapq
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

import penstock
from penstock.core.access import Principal
from penstock.core.histogram import Histogram
from penstock.core.quotas import QUOTAS
from penstock.core.stalls import STALL_BOUNDS_SECONDS
from penstock.limits import METRICS_GROUP_TOPICS_MAX, METRICS_GROUPS_MAX, METRICS_REASONS_MAX
from penstock.memory import SHARES
from penstock.ports import FollowStatus, RetentionRuleStatus, StorageStatus, TierStatus
from penstock.protocols import PROTOCOLS, Protocol
from penstock.server.http.client_counts import ClientCounts, ListGate, count_clients
from penstock.server.http.context import HttpContext
from penstock.server.http.log_queries import groups_of, readable_topics
from penstock.server.http.schemas import Group

__all__ = ["exposition"]

_PROCESS: Final = ProcessCollector(registry=None)


async def exposition(context: HttpContext, principal: Principal, accept: str) -> tuple[bytes, str]:
    """Return all metrics in a format that `accept` names, and its content type.

    Topics are those that a principal may read.
    """
    registry = CollectorRegistry()
    async with context.broker.shared(ListGate).places:
        clients = await count_clients(context.broker)
    # A network file system may take long to answer.
    disk = await asyncio.to_thread(_disk, context.storage.status())
    registry.register(_BrokerCollector(context, clients, await groups_of(context), principal, disk))
    registry.register(_PROCESS)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _BrokerCollector(Collector):
    """Collects the metrics of a broker."""

    def __init__(
        self,
        context: HttpContext,
        clients: ClientCounts,
        groups: list[Group],
        principal: Principal,
        disk: tuple[int, int] | None,
    ) -> None:
        self._disk = disk
        self._context = context
        self._principal = principal
        self._client_counts = clients
        self._groups = groups

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        yield InfoMetricFamily(
            "penstock_build", "The version that runs.", value={"version": penstock.__version__}
        )
        yield _gauge("ready", "1 if clients are welcome.", float(self._context.not_ready() is None))
        yield from self._configuration()
        yield from self._loop()
        yield from self._messages()
        yield from self._clients()
        yield from self._memory()
        yield from self._log()
        yield from self._readers()

    def _configuration(self) -> Iterable[Metric]:
        context = self._context
        for name, text, number in (
            ("reload_timestamp_seconds", "When settings were read last.", context.reloaded_at),
            ("reload_success", "1 if those settings were valid.", float(context.reload_succeeded)),
        ):
            yield _gauge(f"config_last_{name}", text, number)
        text = "When the certificate of a listener expires."
        name = "certificate_expiry_timestamp_seconds"
        yield _gauges(name, text, "listener", context.certificates())

    def _loop(self) -> Iterable[Metric]:
        stalls = self._context.broker.stalls
        yield _counter("loop_stalls", "Stalls of the event loop.", stalls.count)
        for name, text, number in (
            ("loop_stall_seconds_max", "The longest delay of the loop.", stalls.seconds_max),
            (
                "loop_stall_processor_seconds_max",
                "The most processor time of the loop in one delay.",
                stalls.processor_seconds_max,
            ),
        ):
            yield _gauge(name, text, number)
        yield _histogram(
            "loop_stall_seconds",
            "Length of stalls.",
            STALL_BOUNDS_SECONDS,
            stalls.buckets,
            stalls.seconds,
        )
        if stalls.last is not None:
            yield InfoMetricFamily(
                "penstock_loop_last_stall",
                "The functions that ran in the last stall.",
                value={"cause": stalls.last.cause},
            )

    def _messages(self) -> Iterable[Metric]:
        counters = self._context.broker.counters
        received = _labelled(counters.messages_received)
        received["flight"] = counters.messages_received_by_flight
        received["http"] = counters.messages_received_by_http
        yield _counters("messages_received", "Messages that were taken.", "protocol", received)
        for name, text, counts in (
            ("received_bytes", "Bytes that were taken from clients.", counters.bytes_received),
            ("messages_refused", "Messages that were not taken.", counters.messages_refused),
            ("messages_delivered", "Messages written to subscribers.", counters.messages_sent),
            ("delivered_bytes", "Bytes of messages to subscribers.", counters.bytes_sent),
            (
                "messages_dropped",
                "Messages that a subscriber did not get: it was too slow.",
                counters.messages_dropped,
            ),
            (
                "messages_undeliverable",
                "Messages too large for a subscriber's protocol.",
                counters.messages_undeliverable,
            ),
            (
                "messages_unreadable",
                "Messages that the log could not give.",
                counters.messages_unreadable,
            ),
            ("frames_rejected", "Frames that were not valid.", counters.frames_rejected),
        ):
            yield _counters(name, text, "protocol", _labelled(counts))
        reached = sum((each.reached for each in self._context.quotas()), Counter[str]())
        yield _counters(
            "quota_reached",
            "How often the clients of a principal were at a quota.",
            "quota",
            {name: reached[name] for name in QUOTAS},
        )
        yield _gauges(
            "stored_bytes",
            "Bytes in the log, of principals with a quota of them.",
            "principal",
            {
                each.principal: each.stored.size
                for each in self._context.quotas()
                if each.limits.stored_bytes_max and each.stored is not None
            },
        )
        times = self._context.broker.acknowledge_times.histogram
        yield _times("acknowledge_seconds", "From arrival to acknowledgment, by message.", times)
        keys = self._context.broker.deduplication
        yield _counter("duplicates", "Messages with a known key, not stored.", keys.duplicates)
        yield _gauge("message_keys", "Keys of messages that are known.", len(keys))
        text = "Keys forgotten before their time: there were too many."
        yield _counter("message_keys_forgotten", text, keys.forgotten)
        hooks = self._context.broker.hooks
        yield _times("hook_seconds", "How long answers of hooks took.", hooks.calls.times)
        yield _counter("hook_calls", "Calls to middleware.", hooks.calls.made)
        yield _counter("hook_refusals", "Refusals by middleware.", hooks.calls.refusals)
        yield _counter("hook_unanswered", "Calls without an answer.", hooks.calls.unanswered)
        yield _counter(
            "hook_untold", "Events that hooks of strategy TELL were not told.", hooks.calls.untold
        )

    def _clients(self) -> Iterable[Metric]:
        broker, clients = self._context.broker, self._client_counts
        counters = broker.counters
        yield _gauge("connections", "Open connections.", self._context.connections())
        yield _counters(
            "connections_failed",
            "Connections that ended before their handshake, or by a fault.",
            "reason",
            _bounded(counters.connections_failed),
        )
        for name, text, counts in (
            ("clients", "Clients past their handshake.", clients.clients),
            ("subscriptions", "Subscriptions of clients.", clients.subscriptions),
            ("waiting_bytes", "Bytes that wait for clients to read.", clients.waiting_bytes),
            ("slow_clients", "Clients that get no live messages.", clients.slow),
        ):
            yield _gauges(name, text, "protocol", _labelled(counts))
        for name, text, counts in (
            ("clients_opened", "Clients that passed their handshake.", counters.sessions_opened),
            ("fell_behind", "Clients that became slow.", counters.fell_behind),
            ("cut_off", "Clients disconnected for being slow.", counters.cut_off),
        ):
            yield _counters(name, text, "protocol", _labelled(counts))
        topics = broker.topics
        yield _gauge("topics", "Topics that are known.", topics.live)
        yield _gauge("topic_names_bytes", "Bytes of the names of topics.", topics.name_bytes)
        yield _counter("topics_deleted", "Topics that were deleted.", topics.removals)
        yield _gauge("requests_pending", "Requests without an answer.", len(broker.requests))
        services = broker.services
        yield _gauge("services", "Paths that clients have registered.", len(services))
        outcomes = {
            "dispatched": services.dispatched,
            "unserved": services.unserved,
            "invalid": services.invalid,
        }
        yield _counters("service_requests", "Requests to services.", "outcome", outcomes)
        statuses = {f"{digit}xx": count for digit, count in sorted(self._context.requests.items())}
        yield _counters("http_requests", "HTTP requests answered.", "status", statuses)

    def _memory(self) -> Iterable[Metric]:
        memory = self._context.broker.memory
        text = "Memory held for clients and caches."
        yield _gauges("memory_bytes", text, "purpose", memory.by_purpose())
        yield _gauge("memory_drawn_bytes", "Memory drawn from the budget.", memory.used)
        yield _gauge("memory_limit_bytes", "The memory budget.", memory.bytes_max)
        yield _gauge("memory_waiting", "Connections that wait for memory.", memory.waiting)
        yield _counters(
            "memory_refusals",
            "Draws that were refused, by the share that was used up.",
            "share",
            {kind: memory.refusals[kind] for kind in SHARES},
        )
        yield _counter("memory_evictions", "Connections cut to free memory.", memory.evictions)

    def _log(self) -> Iterable[Metric]:
        storage = self._context.storage
        status = storage.status()
        yield _gauge("log_appended_offset", "Offset of the next message.", status.next_offset)
        if not storage.keeps_history:
            return
        for name, text, number in (
            ("log_committed_offset", "End of the readable log.", status.end),
            ("log_durable_offset", "End of the log on disk.", status.durable_end),
            ("log_horizon_offset", "The first offset that is kept.", status.horizon),
            ("log_bytes", "Bytes of all segments.", status.size),
            ("log_segments", "Segments.", len(status.segments)),
            ("log_excess_bytes", "Bytes above the bound of retention.", status.excess_bytes),
            ("log_waiting_bytes", "Values that wait for the disk.", status.waiting_bytes),
        ):
            yield _gauge(name, text, number)
        text = "1 while messages cannot be kept."
        failing = {str(status.partition): int(status.problem is not None)}
        yield _gauges("log_failing", text, "partition", failing)
        yield from _retention(status.retention_rules)
        for name, text, number in (
            ("log_commits", "Commits.", status.commits),
            ("log_commit_failures", "Commits that failed.", status.failures),
            ("log_segments_removed", "Segments that retention removed.", status.segments_removed),
        ):
            yield _counter(name, text, number)
        if self._disk is not None:
            size, free = self._disk
            yield _gauge("disk_size_bytes", "Size of the file system of the log.", size)
            yield _gauge("disk_free_bytes", "Free space in it, for the broker's user.", free)
        if status.tier is not None:
            yield from _tier(status.tier)
        if status.following is not None:
            yield from _following(status.following)
            text = "Threads that hung while they wrote to the log, and were replaced."
            yield _counter("log_writers_replaced", text, status.writers_replaced)
        times = status.sync_times
        yield _histogram(
            "log_sync_seconds",
            "How long the disk took, for each commit.",
            times.bounds_seconds,
            times.buckets,
            times.seconds,
        )

    def _readers(self) -> Iterable[Metric]:
        reads = self._context.flight_reads
        yield _counter("flight_reads", "Ranges read by Arrow Flight.", reads.ranges)
        yield _counter("flight_read_rows", "Rows of them.", reads.rows)
        yield _counter("flight_read_bytes", "Bytes of them.", reads.size)
        yield _gauge("groups", "Consumer groups that have reported.", len(self._groups))
        latest = sorted(self._groups, key=lambda group: group.updated, reverse=True)
        shown = sorted(latest[:METRICS_GROUPS_MAX], key=lambda group: group.name)
        lags = {group.name: group.lag for group in shown}
        yield _gauges("group_lag", "Messages that a group has not processed.", "group", lags)
        members = {group.name: group.members for group in shown}
        yield _gauges("group_members", "Clients in a group.", "group", members)
        unacknowledged = {group.name: group.unacknowledged for group in shown}
        yield _gauges(
            "group_unacknowledged",
            "Messages that members of a group have not acknowledged.",
            "group",
            unacknowledged,
        )
        yield self._topic_lags(shown)
        lost = {group.name: group.lost for group in shown}
        yield _counters(
            "group_lost", "Offsets that were gone before a consumer group read them.", "group", lost
        )

    def _topic_lags(self, groups: Sequence[Group]) -> Metric:
        found = (
            (each.lag, group.name, each.topic)
            for group in groups
            for each in readable_topics(group, self._principal)
        )
        family = GaugeMetricFamily(
            "penstock_group_topic_lag",
            "Messages of a topic that a group has not processed.",
            labels=["group", "topic"],
        )
        for lag, group, topic in sorted(heapq.nlargest(METRICS_GROUP_TOPICS_MAX, found)):
            family.add_metric([group, topic], lag)
        return family


def _disk(status: StorageStatus) -> tuple[int, int] | None:
    """Return size and free bytes of the log's file system; None if the log is not in a folder."""
    if status.kind != "arrow":
        return None
    try:
        usage = shutil.disk_usage(status.location)
    except OSError:
        return None
    return usage.total, usage.free


def _retention(rules: Sequence[RetentionRuleStatus]) -> Iterable[Metric]:
    if not rules:
        return
    names = [" ".join(rule.topics) for rule in rules]
    for name, text, numbers in (
        (
            "log_topics_horizon_offset",
            "The first offset that is kept of the topics of a rule.",
            [rule.horizon for rule in rules],
        ),
        (
            "log_topics_excess_bytes",
            "Bytes of the topics of a rule above its bound.",
            [rule.excess_bytes for rule in rules],
        ),
        (
            "log_topics_expired_bytes",
            "Bytes of expired messages of a rule that still take space.",
            [rule.expired_bytes for rule in rules],
        ),
    ):
        yield _gauges(name, text, "topics", dict(zip(names, numbers, strict=True)))


def _tier(status: TierStatus) -> Iterable[Metric]:
    for name, text, number in (
        ("tier_segments", "Segments in the object store.", status.segments),
        ("tier_bytes", "Bytes of segments in the object store.", status.size),
        ("tier_waiting_segments", "Closed segments to upload.", status.waiting_segments),
        ("tier_waiting_bytes", "Bytes of closed segments to upload.", status.waiting_bytes),
        ("tier_local_bytes", "Bytes of closed segments on the local disk.", status.local_bytes),
        (
            "tier_overdue_segments",
            "Local segments above the limits that are not in the object store yet.",
            status.overdue_segments,
        ),
        (
            "tier_last_upload_timestamp_seconds",
            "Time of the last upload; 0 if there was none since the start.",
            (status.last_upload_us or 0) / 1_000_000,
        ),
        ("tier_failing", "1 while the object store fails.", int(status.problem is not None)),
    ):
        yield _gauge(name, text, number)
    yield _counter("tier_uploads", "Segments uploaded.", status.uploads)
    yield _counter("tier_failures", "Attempts that the object store failed.", status.failures)


def _following(status: FollowStatus) -> Iterable[Metric]:
    text = "1 while the messages of another node are not read."
    late = {str(number): int(is_late) for number, is_late in status.late.items() if number >= 0}
    yield _gauges("follow_failing", text, "partition", late)
    text = "1 while topics, clients and services of other nodes are not read."
    yield _gauge("follow_state_failing", text, int(status.late.get(-1, False)))
    text = "Readers of the messages of other nodes that failed or hung, and were replaced."
    yield _counter("follow_replaced", text, status.replaced)
    counts = status.references
    text = "Row groups of namespaces that other nodes wrote and this node read."
    yield _counter("namespace_groups_read", text, counts.read)
    text = "Bytes of row groups of namespaces that other nodes wrote and this node read."
    yield _counter("namespace_bytes_read", text, counts.read_bytes)
    text = "Row groups of namespaces that no subscriber of this node needed: they were not read."
    yield _counter("namespace_groups_passed", text, counts.passed)


def _labelled(counts: Counter[Protocol]) -> Counter[str]:
    """Return counts of all protocols, zero for those without any."""
    return Counter({protocol.label: counts[protocol] for protocol in PROTOCOLS})


def _bounded(counts: Counter[str]) -> dict[str, int]:
    """Return the highest counts, and the sum of all others."""
    found = dict(counts.most_common(METRICS_REASONS_MAX))
    other = sum(counts.values()) - sum(found.values())
    return {**found, "other": other} if other else found


def _gauge(name: str, text: str, number: float) -> Metric:
    return GaugeMetricFamily(f"penstock_{name}", text, value=number)


def _counter(name: str, text: str, number: float) -> Metric:
    return CounterMetricFamily(f"penstock_{name}", text, value=number)


def _histogram(
    name: str, text: str, bounds: Sequence[float], counts: Iterable[int], seconds: float
) -> Metric:
    buckets, total = [], 0
    for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
        total += count
        buckets.append((str(bound), float(total)))
    return HistogramMetricFamily(f"penstock_{name}", text, buckets=buckets, sum_value=seconds)


def _times(name: str, text: str, times: Histogram) -> Metric:
    return _histogram(name, text, times.bounds_seconds, times.buckets, times.seconds)


def _gauges(name: str, text: str, label: str, numbers: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"penstock_{name}", text, labels=[label])
    for value, number in numbers.items():
        family.add_metric([value], number)
    return family


def _counters(name: str, text: str, label: str, numbers: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"penstock_{name}", text, labels=[label])
    for value, number in numbers.items():
        family.add_metric([value], number)
    return family
