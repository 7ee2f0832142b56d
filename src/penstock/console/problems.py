"""The current problems of a broker: a sentence for each, with a link to its page."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.console.history import Point, State
from penstock.console.refusal_text import subject_text, why_text
from penstock.console.text import count_text, duration_text

__all__ = ["Problem", "find_problems"]

_NEAR: Final = 0.8
"""The part of a limit from which on it is near."""
_RECENT_SECONDS: Final = 300.0
_LAG_MIN: Final = 1000
_LAG_POINTS: Final = 15
_GROWTH: Final = 1.2
"""A lag is a problem if it is this high, and its least value of some points grew by this factor."""
_SLOW_SYNC_MS: Final = 100.0


class Problem(NamedTuple):
    """A problem, and the page that shows more."""

    text: str
    link: str


def find_problems(state: State, points: Sequence[Point], now: float) -> list[Problem]:
    """Return the problems, the worst first; times are seconds since the epoch."""
    if state.away_since is not None:
        ago = duration_text(now - state.away_since)
        return [Problem(f"The broker has not answered for {ago}.", "/storage")]
    return [
        *_of_storage(state),
        *_of_clients(state),
        *_of_groups(state, points),
        *_of_limits(state),
        *_of_refusals(state, now),
        *_of_latency(points),
    ]


def _of_storage(state: State) -> Iterator[Problem]:
    problem = state.rates.get("problem") or state.log.get("problem")
    if problem:
        yield Problem(f"Messages cannot be stored: {problem}.", "/storage")
    tier = state.log.get("tier") or {}
    if tier.get("problem"):
        yield Problem(f"The object store fails: {tier['problem']}.", "/storage")


def _of_clients(state: State) -> Iterator[Problem]:
    slow = state.rates.get("slow", [])
    count = state.rates.get("slow_count", 0)
    if count:
        some = ", ".join(each["name"] or each["address"] for each in slow[:3])
        verb = "client does" if count == 1 else "clients do"
        yield Problem(f"{count:,} {verb} not keep up: {some}.", "/clients?slow=true")


def _of_groups(state: State, points: Sequence[Point]) -> Iterator[Problem]:
    if len(points) < 2 * _LAG_POINTS:
        return
    for group in state.rates.get("groups", []):
        name, lag = group["name"], group["lag"]
        lags = [point.lag.get(name, 0) for point in points[-2 * _LAG_POINTS :]]
        # A group that reads in batches has a lag that rises and falls: its least lag counts.
        before, now = min(lags[:_LAG_POINTS]), min(lags[_LAG_POINTS:])
        if now >= _LAG_MIN and now > _GROWTH * before:
            text = f"Group {name} falls behind: {count_text(lag)} messages, and growing."
            yield Problem(text, "/groups")


def _of_limits(state: State) -> Iterator[Problem]:
    for each in state.limits:
        if each["maximum"] and each["used"] >= _NEAR * each["maximum"]:
            share = round(100 * each["used"] / each["maximum"])
            yield Problem(f"{share} % of the limit of {each['name']} is used.", "/refusals")


def _of_refusals(state: State, now: float) -> Iterator[Problem]:
    recent = [
        each
        for each in state.refusals
        if now - datetime.fromisoformat(each["last"]).astimezone(UTC).timestamp() < _RECENT_SECONDS
    ]
    if recent:
        newest = recent[0]
        more = f" And {len(recent) - 1} more." if len(recent) > 1 else ""
        text = f"{subject_text(newest)} was refused. {why_text(newest)}{more}"
        yield Problem(text, "/refusals")


def _of_latency(points: Sequence[Point]) -> Iterator[Problem]:
    syncs = [point.sync_ms for point in list(points)[-5:] if point.sync_ms is not None]
    if syncs and min(syncs) > _SLOW_SYNC_MS:
        yield Problem(f"The disk is slow: {syncs[-1]:.0f} ms for each sync.", "/storage")
