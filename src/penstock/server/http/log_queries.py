"""API handlers for the log, consumer groups and rates."""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from penstock.core.access import EVERYTHING, Action, Principal, authorize, is_allowed
from penstock.core.groups import GroupFigures
from penstock.limits import (
    GROUP_OWNER_SILENT_SECONDS,
    HTTP_RATES_CLIENTS_MAX,
    HTTP_RATES_MAX,
    HTTP_SEGMENTS_MAX,
)
from penstock.model import Durability
from penstock.ports import GroupSummary, TierStatus
from penstock.protocols import PROTOCOLS, Protocol
from penstock.server.group_lag import Lag
from penstock.server.http.client_counts import ClientCounts, client_of, count_clients, utc_time
from penstock.server.http.context import HttpContext
from penstock.server.http.errors import ApiError
from penstock.server.http.schemas import (
    Consumers,
    Group,
    GroupOffset,
    Groups,
    GroupsQuery,
    LogAnswer,
    LogRetention,
    NoQuery,
    ProtocolRate,
    Rates,
    RatesQuery,
    Segment,
    Tier,
    TopicLag,
    TopicRate,
    TopicRetention,
)

__all__ = [
    "RateMeter",
    "consumers_of",
    "describe_log",
    "groups_of",
    "list_groups",
    "readable_topics",
]

_DURABILITY: Final = {
    Durability.FSYNC: "fsync",
    Durability.OS: "os",
    Durability.MEMORY: "memory",
}


async def describe_log(context: HttpContext, principal: Principal, _query: NoQuery) -> LogAnswer:
    """Return the state of the log; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, "log")
    storage = context.storage
    status = storage.status()
    times = status.sync_times
    return LogAnswer(
        kept=storage.keeps_history,
        kind=status.kind,
        id=f"{status.log_id:012x}",
        partition=status.partition,
        retention=LogRetention(
            status.age_seconds_max,
            status.bytes_max,
            [
                TopicRetention(
                    topics=list(rule.topics),
                    age_seconds_max=rule.age_seconds_max,
                    bytes_max=rule.bytes_max,
                    last_only=rule.last_only,
                    horizon=rule.horizon,
                    excess_bytes=rule.excess_bytes,
                    expired_bytes=rule.expired_bytes,
                )
                for rule in status.retention_rules
            ],
        ),
        durability=_DURABILITY[status.durability],  # type: ignore[arg-type]
        horizon=status.horizon,
        end=status.end,
        durable=status.durable_end,
        next_offset=status.next_offset,
        bytes=status.size,
        waiting_bytes=status.waiting_bytes,
        commits=status.commits,
        syncs=times.count,
        sync_seconds=times.seconds,
        failures=status.failures,
        problem=status.problem,
        segment_count=len(status.segments),
        segments=[
            Segment(
                base_offset=segment.base_offset,
                end_offset=segment.end_offset,
                bytes=segment.size,
                last_time=None if not segment.last_us else utc_time(segment.last_us),
            )
            for segment in status.segments[-HTTP_SEGMENTS_MAX:]
        ],
        tier=None if status.tier is None else _tier_of(status.tier),
    )


def _tier_of(status: TierStatus) -> Tier:
    last = status.last_upload_us
    return Tier(
        url=status.url,
        segments=status.segments,
        bytes=status.size,
        waiting_segments=status.waiting_segments,
        waiting_bytes=status.waiting_bytes,
        local_segments=status.local_segments,
        local_bytes=status.local_bytes,
        overdue_segments=status.overdue_segments,
        uploads=status.uploads,
        failures=status.failures,
        last_upload=None if last is None else utc_time(last),
        problem=status.problem,
    )


async def list_groups(context: HttpContext, principal: Principal, query: GroupsQuery) -> Groups:
    """Return the consumer groups that a principal may read, and their lag."""
    return Groups(
        [
            msgspec.structs.replace(group, topics=readable_topics(group, principal)[: query.topics])
            for group in await groups_of(context)
            if is_allowed(principal, Action.GROUP, group.name)
        ]
    )


def readable_topics(group: Group, principal: Principal) -> list[TopicLag]:
    """Return the lag of a group in the topics that a principal may read, the highest first."""
    return [
        each
        for each in group.topics
        if is_allowed(principal, Action.SUBSCRIBE, each.topic or EVERYTHING)
    ]


async def groups_of(context: HttpContext) -> list[Group]:
    """Return all consumer groups by name; a thread reads them, because that may block."""
    storage = context.storage

    def read() -> list[Group]:
        states = storage.groups.all()
        lags = context.group_lag.of(states, storage.bounds())
        return [_group(state, lags[name], node=storage.partition) for name, state in states.items()]

    found = await context.group_reads.get(read)
    groups = context.broker.groups
    if groups is None:
        return found
    return [_with_figures(group, groups.figures(group.name)) for group in found]


def _with_figures(group: Group, figures: GroupFigures | None) -> Group:
    """Return a group with the figures of this moment, if it has members."""
    if figures is None:
        return group
    return msgspec.structs.replace(
        group,
        consumers="members" if figures.members else "none",
        members=figures.members,
        unacknowledged=figures.unacknowledged,
    )


def consumers_of(state: GroupSummary, *, node: int) -> Consumers:
    """Return what reads for a group that has no members in memory."""
    if not state.is_shared:
        return "external"
    silent_us = time.time() * 1_000_000 - state.updated_us
    if state.node not in (-1, node):
        # A node that was killed does not say that its members are gone.
        return "none" if silent_us > GROUP_OWNER_SILENT_SECONDS * 1_000_000 else "other-node"
    return "none"


def _group(state: GroupSummary, lags: Mapping[int, Lag], *, node: int) -> Group:
    offsets = [
        GroupOffset(partition=number, offset=max(offset, 0), lag=lags[number].messages)
        for number, offset in sorted(state.offsets.items())
    ]
    topics: Counter[str] = Counter()
    for lag in lags.values():
        topics.update(lag.topics)
    subscription = state.subscription
    patterns = None if subscription is None else subscription.patterns or subscription.topics
    return Group(
        name=state.group,
        consumers=consumers_of(state, node=node),
        pattern=patterns[0] if patterns and len(patterns) == 1 else None,
        members=0,
        unacknowledged=state.unacknowledged,
        dead=state.dead,
        lag=sum(each.lag for each in offsets),
        lost=max(state.lost, 0),
        updated=utc_time(max(state.updated_us, 0)),
        offsets=offsets,
        topics=[
            TopicLag(topic=name, lag=count)
            for name, count in sorted(topics.items(), key=lambda each: (-each[1], each[0]))
            if count
        ],
    )


# --- Rates ----------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Sums:
    """Counters at one moment, by source."""

    received: Counter[str]
    received_bytes: Counter[str]
    sent: Counter[str]
    sent_bytes: Counter[str]
    syncs: int
    sync_seconds: float


class RateMeter:
    """Measures rates while the caller waits; for HTTP_RATES_MAX callers at a time."""

    def __init__(self) -> None:
        self._under_way = 0

    async def rates(self, context: HttpContext, principal: Principal, query: RatesQuery) -> Rates:
        """Return the rates of the next seconds; raise NotAllowed or ApiError."""
        authorize(principal, Action.ADMINISTER, "rates")
        if self._under_way >= HTTP_RATES_MAX:
            message = f"{HTTP_RATES_MAX} others measure already; ask again in a second"
            raise ApiError(503, "too-busy", message)
        self._under_way += 1
        try:
            return await _measure(context, query)
        finally:
            self._under_way -= 1


async def _measure(context: HttpContext, query: RatesQuery) -> Rates:
    broker = context.broker
    before, topics_before = _sums(context), broker.topic_counts.snapshot()
    started = broker.clock.monotonic()
    await asyncio.sleep(query.seconds)
    seconds = max(broker.clock.monotonic() - started, 0.001)
    after = _sums(context)
    busiest = broker.topic_counts.busiest_since(topics_before, most=query.topics)
    del topics_before
    router = broker.router
    router.learn_topics()
    topics = [
        TopicRate(
            name=broker.topics.name(identifier),
            messages=count.messages / seconds,
            bytes=count.value_bytes / seconds,
            subscribers=router.subscriber_count(identifier),
        )
        for identifier, count in busiest
        if broker.topics.is_live(identifier)
    ]
    counts = await count_clients(broker, slowest_max=HTTP_RATES_CLIENTS_MAX)
    status = context.storage.status()
    return Rates(
        time=datetime.now(UTC),
        seconds=seconds,
        clients=sum(counts.clients.values()),
        connections=context.connections(),
        subscriptions=sum(counts.subscriptions.values()),
        topic_count=broker.topics.live,
        waiting_bytes=sum(counts.waiting_bytes.values()),
        slow_count=sum(counts.slow.values()),
        protocols=_protocol_rates(before, after, counts, seconds),
        topics=topics,
        slow=[client_of(broker, session) for session in counts.slowest],
        groups=await groups_of(context),
        end_offset=status.end,
        log_waiting_bytes=status.waiting_bytes,
        syncs=after.syncs - before.syncs,
        sync_seconds=max(after.sync_seconds - before.sync_seconds, 0.0),
        problem=status.problem,
    )


def _sums(context: HttpContext) -> _Sums:
    counters = context.broker.counters
    received = _labelled(counters.messages_received)
    received["flight"] = counters.messages_received_by_flight
    received["http"] = counters.messages_received_by_http
    times = context.storage.status().sync_times
    return _Sums(
        received=received,
        received_bytes=_labelled(counters.bytes_received),
        sent=_labelled(counters.messages_sent),
        sent_bytes=_labelled(counters.bytes_sent),
        syncs=times.count,
        sync_seconds=times.seconds,
    )


def _labelled(counts: Counter[Protocol]) -> Counter[str]:
    return Counter({protocol.label: counts[protocol] for protocol in PROTOCOLS})


def _protocol_rates(
    before: _Sums, after: _Sums, counts: ClientCounts, seconds: float
) -> list[ProtocolRate]:
    clients = _labelled(counts.clients)
    return [
        ProtocolRate(
            protocol=label,
            clients=clients[label],
            received_messages=(after.received[label] - before.received[label]) / seconds,
            received_bytes=(after.received_bytes[label] - before.received_bytes[label]) / seconds,
            sent_messages=(after.sent[label] - before.sent[label]) / seconds,
            sent_bytes=(after.sent_bytes[label] - before.sent_bytes[label]) / seconds,
        )
        for label in after.received
    ]
