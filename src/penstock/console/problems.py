"""The current problems of a broker: a sentence for each, with a link to its page."""

import itertools
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
_FAST_SECONDS: Final = 30.0
_FAST_LAG_MIN: Final = 1000
_FAST_GROWTH: Final = 1.2
"""A lag grows fast if it is this high, and its least value of this time grew by this factor."""
_STEADY_SECONDS: Final = 60.0
_STEADY_PARTS: Final = 4
_STEADY_LAG_MIN: Final = 100
"""A lag grows steadily if its least value of this time was higher this number of times in turn."""
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
        *_of_groups(state, points, now),
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


def _of_groups(state: State, points: Sequence[Point], now: float) -> Iterator[Problem]:
    for group in state.rates.get("groups", []):
        name, lag = group["name"], count_text(group["lag"])
        grows = _grows([(point.time, point.lag.get(name)) for point in points], now)
        if group["lag"] and group["consumers"] == "none":
            more = ", and their number grows" if grows else ""
            text = f"Group {name} has no members: {lag} messages wait{more}."
            yield Problem(text, "/groups")
        elif grows:
            yield Problem(f"Group {name} falls behind: {lag} messages, and growing.", "/groups")
        new = _increase(
            [point.dead.get(name) for point in points if now - point.time < _RECENT_SECONDS]
        )
        if new:
            noun = "dead letter" if new == 1 else "dead letters"
            within = duration_text(_RECENT_SECONDS)
            text = (
                f"Group {name} has {count_text(new)} new {noun} of the last {within}, "
                f"{count_text(group['dead'])} in all."
            )
            yield Problem(text, "/groups")


def _grows(lags: Sequence[tuple[float, int | None]], now: float) -> bool:
    """Return whether a lag grows; each value has its time in seconds since the epoch.

    A group that reads in batches has a lag that rises and falls: the least value of some time
    counts.
    """
    fast = _least(lags, now, seconds=_FAST_SECONDS, parts=2)
    if len(fast) == 2 and fast[1] >= max(_FAST_LAG_MIN, _FAST_GROWTH * fast[0] + 1):
        return True
    steady = _least(lags, now, seconds=_STEADY_SECONDS, parts=_STEADY_PARTS)
    return (
        len(steady) == _STEADY_PARTS
        and steady[-1] >= _STEADY_LAG_MIN
        and all(before < after for before, after in itertools.pairwise(steady))
    )


def _least(
    values: Sequence[tuple[float, int | None]], now: float, *, seconds: float, parts: int
) -> list[int]:
    """Return the least value of each part of the last time, the oldest first; known ones only."""
    found: dict[int, int] = {}
    for time, value in values:
        part = int((now - time) // seconds)
        if value is not None and 0 <= part < parts:
            found[part] = min(found.get(part, value), value)
    return [found[part] for part in sorted(found, reverse=True)]


def _increase(values: Sequence[int | None]) -> int:
    """Return by how much a number has grown, without the times when it fell."""
    known = [value for value in values if value is not None]
    return sum(max(after - before, 0) for before, after in itertools.pairwise(known))


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
