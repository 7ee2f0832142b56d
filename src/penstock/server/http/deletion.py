"""Deletion of topics over HTTP, answered when it is on disk."""

import structlog

from penstock.core.access import Action, Principal, authorize
from penstock.errors import LogUnavailable, NoSuchTopic
from penstock.limits import AUDIT_TEXT_CHARACTERS_MAX, LOGGED_NAMES_MAX
from penstock.ports import Receipt
from penstock.server.http.client_counts import in_slices
from penstock.server.http.context import CHANGED, HttpContext
from penstock.server.http.publishing import settled
from penstock.server.http.schemas import Deleted, TopicNames, TopicQuery

__all__ = ["delete_topic", "delete_topics"]

log = structlog.get_logger("penstock.http")


async def delete_topic(context: HttpContext, principal: Principal, query: TopicQuery) -> Deleted:
    """Delete one topic; raise NotAllowed, NoSuchTopic, TopicHasChannel or LogUnavailable."""
    authorize(principal, Action.ADMINISTER, f"topics/{query.name}")
    receipt = context.broker.delete_topic(query.name)
    _log(principal, [query.name])
    return await _finish(context, receipt, 1)


async def delete_topics(context: HttpContext, principal: Principal, asked: TopicNames) -> Deleted:
    """Delete the topics that exist; raise NotAllowed, TopicHasChannel or LogUnavailable.

    If it raises, the topics before the one that failed are deleted.
    """
    receipt = None
    deleted: list[str] = []
    CHANGED.set(deleted)
    try:
        async for name in in_slices(asked.names):
            authorize(principal, Action.ADMINISTER, f"topics/{name}")
            try:
                receipt = context.broker.delete_topic(name)
            except NoSuchTopic:
                continue
            deleted.append(name)
    finally:
        _log(principal, deleted)
    return await _finish(context, receipt, len(deleted))


def _log(principal: Principal, deleted: list[str]) -> None:
    """Log what was deleted; the audit log has all names."""
    if deleted:
        names = [name[:AUDIT_TEXT_CHARACTERS_MAX] for name in deleted[:LOGGED_NAMES_MAX]]
        log.info("topics deleted", principal=principal.name, topics=len(deleted), names=names)


async def _finish(context: HttpContext, receipt: Receipt | None, count: int) -> Deleted:
    if receipt is not None and not await settled(context.broker, receipt):
        raise LogUnavailable("the disk failed; delete again once /readyz says ready")
    return Deleted(count)
