"""What the API tells of the log, of those who read it, and of how fast all goes."""

import asyncio
import dataclasses
from collections import Counter
from datetime import UTC, datetime
from typing import Final

from penstock.core.access import Principal
from penstock.limits import HTTP_RATES_CLIENTS_MAX, HTTP_RATES_MAX, HTTP_SEGMENTS_MAX
from penstock.model import Durability
from penstock.protocols import PROTOCOLS, Protocol
from penstock.server.http.access import may_see_everything
from penstock.server.http.answers import (
    Group,
    GroupOffset,
    Groups,
    LogAnswer,
    NoQuery,
    ProtocolRate,
    Rates,
    RatesQuery,
    Segment,
    TopicRate,
)
from penstock.server.http.census import Census, client_of, moment, take_census
from penstock.server.http.errors import ApiError
from penstock.server.http.view import ServerView
from penstock.storage.group_offsets import GroupOffsets, GroupState

__all__ = ["Measuring", "describe_log", "groups_of", "list_groups"]

_DURABILITY: Final = {
    Durability.FSYNC: "fsync",
    Durability.OS: "os",
    Durability.MEMORY: "memory",
}


async def describe_log(view: ServerView, principal: Principal, _query: NoQuery) -> LogAnswer:
    """Return what there is of the log; raise NotAllowed."""
    may_see_everything(principal)
    writer, log = view.broker.log, view.log
    if log is None:
        return LogAnswer(
            kept=False,
            id=f"{writer.log_id:012x}",
            partition=writer.partition,
            durability="memory",
            horizon=writer.next_offset,
            end=writer.next_offset,
            durable=0,
            next_offset=writer.next_offset,
            bytes=0,
            waiting_bytes=0,
            commits=0,
            syncs=0,
            sync_seconds=0.0,
            failures=0,
            problem=None,
            segment_count=0,
            segments=[],
        )
    segments = log.catalog.segments()
    return LogAnswer(
        kept=True,
        id=f"{log.log_id:012x}",
        partition=log.partition,
        durability=_DURABILITY[log.options.durability.default],  # type: ignore[arg-type]
        horizon=log.horizon,
        end=log.end,
        durable=log.durable_offset,
        next_offset=log.next_offset,
        bytes=sum(segment.size for segment in segments),
        waiting_bytes=log.waiting_bytes,
        commits=log.commits,
        syncs=log.sync_times.count,
        sync_seconds=log.sync_times.seconds,
        failures=log.failures,
        problem=_problem(view),
        segment_count=len(segments),
        segments=[
            Segment(
                base_offset=segment.base_offset,
                end_offset=segment.end_offset,
                bytes=segment.size,
                last_time=None if not segment.last_us else moment(segment.last_us),
            )
            for segment in segments[-HTTP_SEGMENTS_MAX:]
        ],
    )


def _problem(view: ServerView) -> str | None:
    error = view.log.unavailable if view.log is not None else None
    return None if error is None else error.strerror or str(error)


async def list_groups(view: ServerView, principal: Principal, _query: NoQuery) -> Groups:
    """Return groups of readers and how far they are behind; raise NotAllowed."""
    may_see_everything(principal)
    return Groups(await groups_of(view))


async def groups_of(view: ServerView) -> list[Group]:
    """Return all groups, by name; their files are read in a thread."""
    data, log = view.data, view.log
    if data is None or log is None:
        return []
    states = await asyncio.to_thread(GroupOffsets(data).all)
    return [_group(state, partition=log.partition, end=log.end) for state in states.values()]


def _group(state: GroupState, *, partition: int, end: int) -> Group:
    offsets = [
        GroupOffset(
            partition=number,
            offset=max(offset, 0),
            lag=max(end - offset, 0) if number == partition else 0,
        )
        for number, offset in sorted(state.offsets.items())
    ]
    return Group(
        name=state.group,
        lag=sum(each.lag for each in offsets),
        lost=max(state.lost, 0),
        updated=moment(max(state.updated_us, 0)),
        offsets=offsets,
    )


# --- Rates ----------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Sums:
    """What was counted up to a time, by who it came from."""

    received: Counter[str]
    received_bytes: Counter[str]
    sent: Counter[str]
    sent_bytes: Counter[str]
    syncs: int
    sync_seconds: float


class Measuring:
    """Rates, measured while whoever asks waits; not for too many at a time."""

    def __init__(self) -> None:
        self._under_way = 0

    async def rates(self, view: ServerView, principal: Principal, query: RatesQuery) -> Rates:
        """Return what happens in the next seconds; raise NotAllowed or ApiError."""
        may_see_everything(principal)
        if self._under_way >= HTTP_RATES_MAX:
            message = f"{HTTP_RATES_MAX} others measure already; ask again in a second"
            raise ApiError(503, "too-busy", message)
        self._under_way += 1
        try:
            return await _measure(view, query)
        finally:
            self._under_way -= 1


async def _measure(view: ServerView, query: RatesQuery) -> Rates:
    broker = view.broker
    before, topics_before = _sums(view), broker.topic_counts.snapshot()
    started = broker.clock.monotonic()
    await asyncio.sleep(query.seconds)
    seconds = max(broker.clock.monotonic() - started, 0.001)
    after = _sums(view)
    busiest = broker.topic_counts.busiest_since(topics_before, most=query.topics)
    del topics_before
    router = broker.router
    router.learn_topics()
    topics = [
        TopicRate(
            name=broker.topics.name(identifier),
            messages=count.messages / seconds,
            bytes=count.value_bytes / seconds,
            subscribers=router.subscriber_count(router.route_of_topic[identifier]),
        )
        for identifier, count in busiest
    ]
    census = await take_census(broker, slowest_max=HTTP_RATES_CLIENTS_MAX)
    log = view.log
    return Rates(
        time=datetime.now(UTC),
        seconds=seconds,
        clients=sum(census.clients.values()),
        connections=view.connections(),
        subscriptions=sum(census.subscriptions.values()),
        topic_count=len(broker.topics),
        waiting_bytes=sum(census.waiting_bytes.values()),
        slow_count=sum(census.slow.values()),
        protocols=_protocol_rates(before, after, census, seconds),
        topics=topics,
        slow=[client_of(broker, session) for session in census.slowest],
        groups=await groups_of(view),
        end_offset=broker.log.next_offset if log is None else log.end,
        log_waiting_bytes=0 if log is None else log.waiting_bytes,
        syncs=after.syncs - before.syncs,
        sync_seconds=max(after.sync_seconds - before.sync_seconds, 0.0),
        problem=_problem(view),
    )


def _sums(view: ServerView) -> _Sums:
    counters = view.broker.counters
    received = _labelled(counters.messages_received)
    received["flight"] = counters.messages_received_by_flight
    received["http"] = counters.messages_received_by_http
    times = view.log.sync_times if view.log is not None else None
    return _Sums(
        received=received,
        received_bytes=_labelled(counters.bytes_received),
        sent=_labelled(counters.messages_sent),
        sent_bytes=_labelled(counters.bytes_sent),
        syncs=times.count if times is not None else 0,
        sync_seconds=times.seconds if times is not None else 0.0,
    )


def _labelled(counts: Counter[Protocol]) -> Counter[str]:
    return Counter({protocol.label: counts[protocol] for protocol in PROTOCOLS})


def _protocol_rates(
    before: _Sums, after: _Sums, census: Census, seconds: float
) -> list[ProtocolRate]:
    clients = _labelled(census.clients)
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
