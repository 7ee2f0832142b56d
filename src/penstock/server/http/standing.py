"""API handlers for what a caller may do, what was refused, and which limits are near."""

from datetime import UTC, datetime
from typing import Final, Literal

from penstock.core.access import (
    EVERYTHING,
    Action,
    Principal,
    authorize,
    is_allowed,
    is_allowed_anywhere,
)
from penstock.core.quotas import NO_LIMITS
from penstock.limits import METRICS_REASONS_MAX
from penstock.memory.account import UNLIMITED
from penstock.server.http.console_schemas import (
    FailedConnections,
    Limits,
    LimitUse,
    Me,
    MeQuery,
    QuotaUse,
    Refusal,
    Refusals,
)
from penstock.server.http.context import HttpContext
from penstock.server.http.schemas import NoQuery

__all__ = ["AREAS", "describe_caller", "list_limits", "list_refusals"]

AREAS: Final = (
    "clients", "clients/disconnect", "cluster", "drain", "groups/#", "hooks", "limits", "log",
    "pipeline", "rates", "refusals", "subscriptions",
)  # fmt: skip
"""Areas of the API and of the console that the right `administer` is asked for."""


async def describe_caller(context: HttpContext, principal: Principal, query: MeQuery) -> Me:
    """Return the caller and its rights."""
    topic = EVERYTHING if query.topic is None else query.topic
    return Me(
        name=principal.name,
        anonymous=principal.is_anonymous,
        administers=[area for area in AREAS if is_allowed(principal, Action.ADMINISTER, area)],
        publish=is_allowed(principal, Action.PUBLISH, topic),
        subscribe=is_allowed(principal, Action.SUBSCRIBE, topic),
        groups=_groups(principal),
        log=context.storage.status().kind,
    )


def _groups(principal: Principal) -> Literal["all", "some", "none"]:
    """Return which consumer groups a principal may use."""
    if is_allowed(principal, Action.GROUP, EVERYTHING):
        return "all"
    return "some" if is_allowed_anywhere(principal, Action.GROUP) else "none"


async def list_refusals(context: HttpContext, principal: Principal, _query: NoQuery) -> Refusals:
    """Return the last refusals, and the connections that failed; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, "refusals")
    failed = context.broker.counters.connections_failed.most_common(METRICS_REASONS_MAX)
    return Refusals(
        refusals=[
            Refusal(
                time=_utc(each.first),
                last=_utc(each.last),
                count=each.count,
                principal=each.principal,
                address=each.host,
                protocol=each.protocol,
                action=each.action,
                name=each.name,
                client=each.client,
                rule=each.rule,
            )
            for each in context.refusals()
        ],
        connections_failed=[FailedConnections(reason, count) for reason, count in failed],
    )


async def list_limits(context: HttpContext, principal: Principal, _query: NoQuery) -> Limits:
    """Return how much of each limit is used; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, "limits")
    broker = context.broker
    topics, memory = broker.topics, broker.memory
    found = [
        LimitUse("topics", "broker.topics_max", topics.live, topics.capacity),
        LimitUse(
            "bytes of topic names",
            "broker.topic_names_bytes_max",
            topics.name_bytes,
            topics.name_bytes_max,
        ),
        LimitUse("memory", "limits.memory_bytes_max", memory.used, memory.bytes_max),
        LimitUse(
            "connections",
            "limits.connections_max",
            context.connections(),
            context.connections_max(),
            lowered_by="open files" if context.connections_lowered() else "",
        ),
    ]
    bounded = [each for each in found if each.maximum < UNLIMITED]
    return Limits(
        sorted(bounded, key=lambda each: each.used / max(each.maximum, 1), reverse=True),
        [
            QuotaUse(
                principal=each.principal,
                connections=each.connections,
                connections_max=each.limits.connections_max,
                messages_per_second_max=each.limits.messages_per_second_max,
                bytes_per_second_max=each.limits.bytes_per_second_max,
                stored_bytes=0 if each.stored is None else each.stored.size,
                stored_bytes_max=each.limits.stored_bytes_max,
                topics=topics.share_of(each.principal)[0],
                topics_max=each.limits.topics_max,
                reached=dict(each.reached),
            )
            for each in context.quotas()
            if each.limits != NO_LIMITS
        ],
    )


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
