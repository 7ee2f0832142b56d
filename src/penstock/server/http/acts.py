"""API handlers that act on clients."""

import structlog

from penstock.core.access import Action, Principal, authorize
from penstock.core.sessions import Session
from penstock.server.http.client_counts import in_slices
from penstock.server.http.console_schemas import ClientQuery, Disconnected
from penstock.server.http.context import HttpContext
from penstock.server.http.errors import ApiError

__all__ = ["disconnect_client"]

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
