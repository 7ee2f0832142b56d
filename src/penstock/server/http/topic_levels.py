"""API handler for the levels of topic names: a tree of which one level is read at a time."""

import dataclasses

from penstock.core.access import Action, Principal, is_allowed
from penstock.server.http.client_counts import ListGate, in_slices
from penstock.server.http.console_schemas import Level, Levels, LevelsQuery
from penstock.server.http.context import HttpContext

__all__ = ["list_levels"]


@dataclasses.dataclass(slots=True)
class _Count:
    topics: int = 0
    messages: int = 0
    is_topic: bool = False


async def list_levels(context: HttpContext, principal: Principal, query: LevelsQuery) -> Levels:
    """Return the level below a prefix, of topics that a principal may read."""
    async with context.broker.shared(ListGate).places:
        found = await _counted(context, principal, query.prefix)
    names = sorted(name for name in found if name > query.after)
    page = names[: query.limit]
    return Levels(
        levels=[
            Level(name, found[name].topics, found[name].messages, found[name].is_topic)
            for name in page
        ],
        total=len(found),
        next=page[-1] if len(names) > query.limit else None,
    )


async def _counted(context: HttpContext, principal: Principal, prefix: str) -> dict[str, _Count]:
    """Return the counts of each name below a prefix; herald channels only if they are in use."""
    broker = context.broker
    names = broker.topics
    broker.router.learn_topics()
    unused = {names.channel_topic(channel) for channel in range(256)}
    found: dict[str, _Count] = {}
    async for identifier in in_slices(range(len(broker.router.route_of_topic))):
        if not names.is_live(identifier):
            continue
        name = names.name(identifier)
        if not name.startswith(prefix) or not is_allowed(principal, Action.SUBSCRIBE, name):
            continue
        messages = broker.topic_counts.of(identifier).messages
        if identifier in unused and not messages:
            continue
        level, _, rest = name[len(prefix) :].partition("/")
        count = found.setdefault(level, _Count())
        count.topics += 1
        count.messages += messages
        count.is_topic = count.is_topic or not rest
    return found
