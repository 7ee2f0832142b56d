"""API handler for hooks and requests, and how long their answers take."""

from penstock.core.access import Action, Principal, authorize
from penstock.core.histogram import Histogram
from penstock.core.hooks import Hook
from penstock.core.requests import Failure
from penstock.server.http.context import HttpContext
from penstock.server.http.schemas import NoQuery
from penstock.server.http.watching_schemas import Durations, HookEntry, Hooks

__all__ = ["list_hooks"]


async def list_hooks(context: HttpContext, principal: Principal, _query: NoQuery) -> Hooks:
    """Return all hooks, and the times of requests; raise NotAllowed."""
    authorize(principal, Action.ADMINISTER, "hooks")
    requests = context.broker.requests
    return Hooks(
        hooks=[_entry(hook) for hook in context.broker.hooks],
        requests_pending=len(requests),
        requests_timed_out=requests.failed[Failure.TIMED_OUT],
        requests_target_left=requests.failed[Failure.TARGET_LEFT],
        request_answers=_durations(requests.times),
    )


def _entry(hook: Hook) -> HookEntry:
    figures = hook.figures
    return HookEntry(
        name=hook.name,
        event=hook.kind.value,
        strategy=hook.strategy.name.lower(),
        priority=hook.priority,
        topics=sorted(hook.topics),
        headers=[name for name, _ in hook.headers],
        client=hook.client,
        principal=hook.principal.name,
        connected=hook.middleware is not None,
        timeout_seconds=hook.timeout_seconds,
        calls=figures.made,
        waiting=len(hook.waiting),
        refusals=figures.refusals,
        unanswered=figures.unanswered,
        answers=_durations(figures.times),
    )


def _durations(times: Histogram) -> Durations:
    count = times.count
    return Durations(
        count=count,
        mean_seconds=times.seconds / count if count else 0.0,
        p50_seconds=times.quantile(0.5),
        p99_seconds=times.quantile(0.99),
        max_seconds=times.seconds_max,
    )
