"""API handlers that act on clients and on the broker."""

import os

import structlog

from penstock.core.access import Action, Principal, authorize
from penstock.core.sessions import Session
from penstock.server.http.client_counts import in_slices
from penstock.server.http.console_schemas import ClientQuery, Disconnected, Draining, DrainQuery
from penstock.server.http.context import TRANSPORT, HttpContext
from penstock.server.http.errors import ApiError

__all__ = ["disconnect_client", "drain"]

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


async def drain(context: HttpContext, principal: Principal, query: DrainQuery) -> Draining:
    """Begin to drain the broker; raise NotAllowed or ApiError.

    The connection of the request is closed when the process ends.
    """
    authorize(principal, Action.ADMINISTER, "drain")
    if context.draining or context.stopping:
        raise ApiError(409, "stopping", "the broker is already stopping")
    if context.drain is None:
        raise ApiError(501, "not-supported", "this broker is part of another program; stop that")
    context.draining = True
    clients = len(context.broker.sessions)
    _keep_open_until_exit()
    seconds_max = context.drain(query.seconds)
    log.info(
        "draining", principal=principal.name, clients=clients, seconds_max=round(seconds_max, 3)
    )
    return Draining(clients, seconds_max)


def _keep_open_until_exit() -> None:
    """Keep the connection of this request open until the process ends, however it ends.

    A caller on another machine has no other way to see that. The transport is closed before the
    log; a second descriptor of its socket stays open, and the operating system closes that one.
    """
    transport = TRANSPORT.get()
    if transport is not None:
        os.dup(transport.get_extra_info("socket").fileno())


async def _find(context: HttpContext, connection: int) -> Session | None:
    async for session in in_slices(list(context.broker.sessions)):
        if session.link.connection == connection:
            return session
    return None
