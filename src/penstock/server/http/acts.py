"""API handlers that act: disconnect a client, set the offset of a consumer group."""

import asyncio

import structlog

from penstock.core.access import Action, Principal, authorize
from penstock.core.sessions import Session
from penstock.ports import AuditEvent
from penstock.protocols import HTTP
from penstock.server.http.client_counts import in_slices
from penstock.server.http.console_schemas import ClientQuery, Disconnected, GroupReset, Reset
from penstock.server.http.context import PEER, HttpContext
from penstock.server.http.errors import ApiError
from penstock.server.http.messages import timestamp_us
from penstock.storage.group_offsets import InvalidGroup

__all__ = ["disconnect_client", "reset_group"]

log = structlog.get_logger("penstock.http")


async def disconnect_client(
    context: HttpContext, principal: Principal, query: ClientQuery
) -> Disconnected:
    """Close the connection of a client; raise NotAllowed or ApiError. The client may come back."""
    authorize(principal, Action.ADMINISTER, "clients/disconnect")
    session = await _find(context, query.connection)
    if session is None:
        message = f"there is no client with connection {query.connection}"
        raise ApiError(404, "no-such-client", message)
    found = Disconnected(session.link.connection, session.name, session.principal.name)
    session.end()
    session.link.abort()  # at once, even if the client does not read
    log.info(
        "client disconnected",
        principal=principal.name,
        connection=found.connection,
        client=found.name,
    )
    return found


async def _find(context: HttpContext, connection: int) -> Session | None:
    async for session in in_slices(list(context.broker.sessions)):
        if session.link.connection == connection:
            return session
    return None


async def reset_group(context: HttpContext, principal: Principal, asked: GroupReset) -> Reset:
    """Set the offset of a consumer group; raise NotAllowed or ApiError.

    It is where readers that ask the broker for the offset of the group go on. A Spark query has its
    own checkpoint, and reports its offset again with the next batch.
    """
    authorize(principal, Action.GROUP, asked.group)
    if (asked.offset is None) is (asked.time is None):
        raise ApiError(400, "bad-request", "expected one of offset and time")
    storage = context.storage
    bounds = storage.bounds()[storage.partition]
    if asked.offset is not None and not bounds.horizon <= asked.offset <= bounds.end:
        message = f"offset: expected {bounds.horizon} to {bounds.end}, the messages that are kept"
        raise ApiError(400, "bad-request", message)

    def commit() -> Reset:
        groups, partition = storage.groups, storage.partition
        before = groups.load(asked.group)
        if before is None:
            raise ApiError(404, "no-such-group", f"there is no group {asked.group!r}")
        offset = asked.offset
        if offset is None and asked.time is not None:
            offset = storage.offset_at(partition, timestamp_us(asked.time))
        offset = offset or 0
        groups.commit(asked.group, {partition: offset}, subscription=before.subscription)
        return Reset(asked.group, partition, before.offsets.get(partition), offset)

    try:
        done = await asyncio.to_thread(commit)
    except InvalidGroup as error:
        raise ApiError(400, "bad-request", str(error)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ApiError(503, "log-unavailable", f"the offset was not stored: {reason}") from None
    context.broker.audit.record(
        AuditEvent.ADMINISTERED,
        principal=principal.name,
        peer=PEER.get(),
        protocol=HTTP.label,
        act="resetGroup",
        name=asked.group,
    )
    log.info("group reset", principal=principal.name, group=asked.group, offset=done.offset)
    return done
