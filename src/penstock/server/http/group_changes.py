"""Consumer groups over HTTP: one group with its members, reset, redrive and removal."""

import asyncio
from collections.abc import Callable

import structlog

from penstock.core.access import Action, Principal, authorize, is_allowed
from penstock.core.groups import Groups, Redriven
from penstock.errors import GroupDiffers, NoHistory, NoSuchGroup
from penstock.replay import Ago, AtOffset, AtTime, Earliest, parse_start, split_group
from penstock.server.http.context import HttpContext
from penstock.server.http.errors import ApiError
from penstock.server.http.log_queries import groups_of, readable_topics
from penstock.server.http.schemas import (
    GroupChange,
    GroupDetail,
    GroupMember,
    GroupQuery,
    GroupResetQuery,
)

__all__ = ["redrive_group", "remove_group", "reset_group", "show_group"]

log = structlog.get_logger("penstock.http")


async def show_group(context: HttpContext, principal: Principal, query: GroupQuery) -> GroupDetail:
    """Return one group; its members too, if the principal may see clients. Raise NoSuchGroup."""
    authorize(principal, Action.GROUP, query.name)
    found = [group for group in await groups_of(context) if group.name == query.name]
    if not found:
        raise NoSuchGroup(query.name[:200])
    groups = context.broker.groups
    members = []
    if groups is not None and is_allowed(principal, Action.ADMINISTER, "clients"):
        members = [
            GroupMember(
                name=session.name,
                connection=session.link.connection,
                protocol=session.encoding.protocol.label,
                unacknowledged=held,
            )
            for session, held in groups.members(query.name)
        ]
    group = found[0]
    return GroupDetail(
        name=group.name,
        consumers=group.consumers,
        pattern=group.pattern,
        lag=group.lag,
        lost=group.lost,
        unacknowledged=group.unacknowledged,
        dead=group.dead,
        updated=group.updated,
        offsets=group.offsets,
        topics=readable_topics(group, principal)[: query.topics],
        members=members,
    )


async def reset_group(
    context: HttpContext, principal: Principal, query: GroupResetQuery
) -> GroupChange:
    """Let a group go on at a time or an offset; raise NoSuchGroup, GroupDiffers or ApiError."""
    groups = _groups(context, principal, query.name)
    offsets = await _offsets(context, query.to)
    await _opened(groups, query.name)
    own = context.storage.partition
    position = offsets[own]

    def reset(then: Callable[[Exception | None], None]) -> None:
        nonlocal position
        position = groups.reset(query.name, offsets, then).get(own, position)

    try:
        await _stored(reset)
    except GroupDiffers:
        position = await asyncio.to_thread(_set_report, context, query.name, position)
    log.info("group reset", principal=principal.name, group=query.name, offset=position)
    return GroupChange(name=query.name, offset=position)


def _set_report(context: HttpContext, name: str, offset: int) -> int:
    """Set the offset that a reader of tables reported last; return it. Raise ApiError.

    Readers that ask for the offset of their group go on there. A Spark query has its own
    checkpoint, and reports its offset again with the next batch.
    """
    storage = context.storage
    partition, before = storage.partition, storage.groups.load(name)
    if before is None:
        raise NoSuchGroup(name[:200])
    bounds = storage.bounds()[partition]
    offset = min(max(offset, bounds.horizon), bounds.end)
    try:
        storage.groups.commit(name, {partition: offset}, subscription=before.subscription)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ApiError(503, "log-unavailable", f"the offset was not stored: {reason}") from None
    return offset


async def redrive_group(
    context: HttpContext, principal: Principal, query: GroupQuery
) -> GroupChange:
    """Deliver the dead letters of a group again; raise NoSuchGroup or GroupDiffers."""
    groups = _groups(context, principal, query.name)
    await _opened(groups, query.name)
    found = Redriven(0, 0)

    def redrive(then: Callable[[Exception | None], None]) -> None:
        def redriven(result: Redriven | Exception) -> None:
            nonlocal found
            if isinstance(result, Exception):
                then(result)
            else:
                found = result
                then(None)

        groups.redrive(query.name, redriven)

    await _stored(redrive)
    log.info(
        "group redriven",
        principal=principal.name,
        group=query.name,
        messages=found.messages,
        gone=found.gone,
    )
    return GroupChange(name=query.name, messages=found.messages, gone=found.gone)


async def remove_group(
    context: HttpContext, principal: Principal, query: GroupQuery
) -> GroupChange:
    """Remove a group; members are disconnected. Raise NoSuchGroup."""
    groups = _groups(context, principal, query.name)
    await _opened(groups, query.name)
    removed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def done(error: Exception | None) -> None:
        if not removed.done():
            removed.set_result(error)

    for session in groups.remove(query.name, done):
        session.end()  # it would not notice otherwise
    error = await removed
    if error is not None:
        raise ApiError(503, "log-unavailable", f"the group cannot be removed: {error}")
    log.info("group removed", principal=principal.name, group=query.name)
    return GroupChange(name=query.name)


def _groups(context: HttpContext, principal: Principal, name: str) -> Groups:
    """Return the groups of the broker if a principal may change one; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, f"groups/{name}")
    if context.broker.groups is None:
        raise NoHistory
    if split_group(f"x@group={name}")[1] is None:
        raise NoSuchGroup(name[:200])
    return context.broker.groups


async def _opened(groups: Groups, name: str) -> None:
    done = asyncio.Event()
    groups.open(name, done.set)
    await done.wait()


async def _stored(work: Callable[[Callable[[Exception | None], None]], None]) -> None:
    """Wait until a change is stored; raise ApiError if it cannot be."""
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def stored(error: Exception | None) -> None:
        if not done.done():
            done.set_result(error)

    work(stored)
    error = await done
    if error is not None:
        raise ApiError(503, "log-unavailable", f"the group cannot be stored: {error}")


async def _offsets(context: HttpContext, to: str) -> dict[int, int]:
    """Return the offsets of partitions that `to` stands for; raise ApiError or LogError.

    An offset is one of the partition that this process writes.
    """
    storage = context.storage
    bounds = storage.bounds()
    start = AtOffset(int(to)) if to.isascii() and to.isdigit() else parse_start(to)
    match start:
        case Earliest():
            return {number: each.horizon for number, each in bounds.items()}
        case AtOffset(offset):
            return {storage.partition: offset}
        case Ago(us):
            return await _at_time(context, context.broker.clock.now_us() - us)
        case AtTime(us):
            return await _at_time(context, us)
    if to == "latest":
        await storage.flush()  # offsets of messages that are not in the log may be assigned again
        return {number: each.end for number, each in storage.bounds().items()}
    message = f"to: expected earliest, latest, an offset, a time or -15m, got {to[:200]!r}"
    raise ApiError(400, "bad-request", message)


async def _at_time(context: HttpContext, timestamp_us: int) -> dict[int, int]:
    storage = context.storage

    def find() -> dict[int, int]:
        return {
            number: storage.offset_at(number, max(timestamp_us, 0)) for number in storage.partitions
        }

    try:
        return await asyncio.to_thread(find)
    except OSError as error:
        raise ApiError(503, "log-unavailable", f"the time was not found: {error}") from None
