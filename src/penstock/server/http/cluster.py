"""API handler for the nodes of a log."""

import asyncio

from penstock.core.access import Action, Principal, authorize
from penstock.ports.nodes import NodeStatus
from penstock.server.http.client_counts import utc_time
from penstock.server.http.context import HttpContext
from penstock.server.http.errors import ApiError
from penstock.server.http.schemas import NoQuery
from penstock.server.http.watching_schemas import Cluster, ClusterNode, FollowedPartition

__all__ = ["describe_cluster"]


async def describe_cluster(context: HttpContext, principal: Principal, _query: NoQuery) -> Cluster:
    """Return the nodes and how far they follow each other; raise NotAllowed or ApiError."""
    authorize(principal, Action.ADMINISTER, "cluster")
    status = context.storage.status()
    try:
        nodes = await asyncio.to_thread(context.storage.nodes)
    except OSError as error:
        raise ApiError(503, "log-unavailable", str(error.strerror or error)) from None
    return Cluster(
        log=status.kind,
        location=status.location,
        node=status.partition,
        nodes=[_node(each) for each in nodes],
    )


def _node(status: NodeStatus) -> ClusterNode:
    last, reported = status.last_us, status.reported_us
    return ClusterNode(
        node=status.number,
        host=status.host,
        process=status.process,
        started=utc_time(status.since_us),
        horizon=status.horizon,
        end=status.end,
        last_time=None if not last else utc_time(last),
        reported=None if reported is None else utc_time(reported),
        follows=[
            FollowedPartition(number, each.offset, max(each.end - each.offset, 0))
            for number, each in sorted(status.followed.items())
        ],
    )
