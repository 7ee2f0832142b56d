"""The API handler for services by name."""

from collections import Counter

from penstock.core.access import Principal
from penstock.core.services import may_see
from penstock.server.http.client_counts import ListGate, in_slices
from penstock.server.http.context import HttpContext
from penstock.server.http.schemas import Service, ServiceNode, Services, ServicesQuery
from penstock.service_messages import path_of_requests

__all__ = ["list_services"]


async def list_services(
    context: HttpContext, principal: Principal, query: ServicesQuery
) -> Services:
    """Return the services that a principal may ask or serve."""
    broker = context.broker
    services, own = broker.services, broker.log.partition
    async with broker.shared(ListGate).places:
        subscribers = await _subscribers(context)
        found: list[Service] = []
        names = {*services, *subscribers}
        async for name in in_slices(services.elsewhere):
            if services.elsewhere.nodes(name):
                names.add(name)
        async for name in in_slices(sorted(names)):
            path = f"/{name}"
            if path < query.after or not may_see(principal, name):
                continue
            if len(found) == query.limit:
                return Services(found, path)
            nodes = [
                ServiceNode(node, each.servers, each.subscribers)
                for node, each in services.elsewhere.nodes(name).items()
            ]
            able = services.servers(name)
            servers = len(able)
            if servers or subscribers[name]:
                nodes.append(ServiceNode(own, servers, subscribers[name]))
            nodes.sort(key=lambda each: each.node)
            found.append(
                Service(
                    path,
                    sum(each.servers for each in nodes),
                    sum(each.subscribers for each in nodes),
                    services.pending(able),
                    nodes,
                )
            )
    return Services(found, None)


async def _subscribers(context: HttpContext) -> Counter[str]:
    """Return how many clients subscribe to the topic of each path."""
    found: Counter[str] = Counter()
    async for session in in_slices(list(context.broker.sessions)):
        texts = [*session.subscriptions, *(each.text for each in session.memberships.values())]
        found.update({path for text in texts if (path := path_of_requests(text)) is not None})
    return found
