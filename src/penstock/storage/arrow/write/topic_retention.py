"""Retention by topic: moves the horizons of topics, so that their expired messages are not read.

A segment has messages of many topics and goes as a whole. So the messages that a rule expires are
hidden at once, and a segment is removed when all its messages have expired. Until then they take
space, which is measured.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

import structlog

from penstock.errors import LogError
from penstock.limits import RETENTION_SEARCH_SHARE
from penstock.ports import RetentionRuleStatus
from penstock.storage.arrow.format.topic_horizons import (
    RuleHorizon,
    TopicHorizons,
    save_horizons,
)
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.read.last_messages import last_messages
from penstock.storage.arrow.recover.recovery import Segment
from penstock.storage.arrow.write.expired_bytes import ExpiredBytes
from penstock.storage.arrow.write.retention import tried_again
from penstock.storage.arrow.write.rule_sizes import RuleSizes
from penstock.storage.files import Files
from penstock.storage.options import TopicRetention

__all__ = ["TopicExpiry"]

log = structlog.get_logger("penstock.log")

_Wanted = Callable[[str], bool]


class _Stopped(Exception):
    """The log is being closed: what was found is not used."""


class TopicExpiry:
    """Applies the rules of `[[retention]]`, in the writer thread.

    `later` runs a function in that thread. Last messages are searched in a thread of their own.
    """

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        rules: Sequence[TopicRetention],
        *,
        later: Callable[[Callable[[], None]], None],
        segment_bytes_max: int,
    ) -> None:
        self._files = files
        self._catalog = catalog
        self._rules = rules
        self._excluded = [
            tuple(topic for earlier in rules[:number] for topic in earlier.topics)
            for number in range(len(rules))
        ]
        self._later = later
        wanted = [self._wanted(number) for number in range(len(rules))]
        self._sizes = RuleSizes(catalog, wanted)
        self._expired = ExpiredBytes(
            catalog,
            RuleSizes(catalog, wanted, rest=self._check_stop),
            segment_bytes_max=segment_bytes_max,
        )
        self._kept: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopping = False
        self._search_at = 0.0

    @property
    def _known(self) -> dict[int, RuleHorizon]:
        """The horizons of the rules that are set, by number."""
        found = {}
        for number, rule in enumerate(self._rules):
            key = (rule.topics, self._excluded[number], rule.last_only)
            for each in self._catalog.horizons.rules:
                if (each.topics, each.excluded, each.last is not None) == key:
                    found[number] = each
        return found

    def status(self) -> tuple[RetentionRuleStatus, ...]:
        """Return the state of the rules. Any thread may call it."""
        known, expired = self._known, self._expired.by_rule
        return tuple(
            RetentionRuleStatus(
                topics=rule.topics,
                age_seconds_max=rule.age_seconds_max,
                bytes_max=rule.bytes_max,
                last_only=rule.last_only,
                horizon=known[number].horizon if number in known else 0,
                excess_bytes=self._excess(number),
                expired_bytes=expired.get(number, 0),
            )
            for number, rule in enumerate(self._rules)
        )

    def _excess(self, number: int) -> int:
        bound = self._rules[number].bytes_max
        return 0 if bound is None else max(self._kept.get(number, 0) - bound, 0)

    # --- In the writer thread

    def apply(self, now_us: int) -> None:
        """Move the horizons of ages and bytes, and search for last messages; raise OSError."""
        changed = {}
        for number, rule in enumerate(self._rules):
            if not rule.last_only:
                horizon = 0
                if rule.age_seconds_max is not None:
                    horizon = self._of_age(now_us - int(rule.age_seconds_max * 1_000_000))
                if rule.bytes_max is not None:
                    horizon = max(horizon, self._of_bytes(number, rule.bytes_max))
                changed[number] = horizon
        self._advance(
            {
                number: RuleHorizon(self._rules[number].topics, self._excluded[number], horizon)
                for number, horizon in changed.items()
            }
        )
        self._search()

    def expired_segments(self, closed: Sequence[Segment]) -> int:
        """Return how many of the oldest closed segments have no message left; raise OSError.

        The last closed segment always stays: it tells where the log ends.
        """
        count = 0
        for segment in closed[:-1]:
            kept = self._catalog.kept(segment)
            if kept is None or segment.end_offset > self._catalog.horizons.highest:
                break
            if len(self._catalog.index(segment).with_topics(kept)):
                break
            count += 1
        return count

    def _advance(self, new: dict[int, RuleHorizon]) -> None:
        """Store horizons and show them to readers; they never go back."""
        before, known = self._catalog.horizons, self._known
        horizon = self._catalog.horizon  # older messages are gone anyway
        changed = {
            number: rule
            for number, rule in new.items()
            if rule.horizon > (known[number].horizon if number in known else 0)
        }
        if not changed:
            return
        replaced = {id(known[number]): changed.pop(number) for number in known if number in changed}
        rules = [replaced.get(id(each), each) for each in before.rules]
        rules = [each for each in [*rules, *changed.values()] if each.horizon > horizon]
        horizons = TopicHorizons(rules, before=before)
        save_horizons(self._files, self._catalog.folder, horizons)
        self._catalog.horizons = horizons

    def _of_age(self, timestamp_us: int) -> int:
        place = self._catalog.place_of_time(timestamp_us)
        if place is not None:
            return place.entry.base_offset
        segments = self._catalog.segments()
        return segments[-1].end_offset if segments else 0

    # --- Bytes

    def _of_bytes(self, number: int, bytes_max: int) -> int:
        """Return the offset from which on the messages of a rule have at most `bytes_max`."""
        total = 0
        excess = self._excess(number)
        segments = self._catalog.segments()
        self._sizes.forget_removed()
        horizon = 0
        for segment in reversed(segments):
            size = self._sizes.total(number, segment).size
            if total + size > bytes_max:
                sizes = [each.size for each in self._sizes.of(number, segment)]
                found = _cut(sizes, bytes_max - total, is_first=not total)
                if found is not None:
                    entry = self._catalog.index(segment).entry(found)
                    horizon = entry.base_offset + entry.count
                    total += sum(sizes[found + 1 :])
                    break
            total += size
        self._kept[number] = total
        if self._excess(number) and not excess:
            log.warning(
                "retention bound not held",
                topics=list(self._rules[number].topics),
                bytes=total,
                bytes_max=bytes_max,
            )
        return horizon

    def _wanted(self, number: int) -> _Wanted:
        """Return what tells the topics of a rule."""
        rule = RuleHorizon(self._rules[number].topics, self._excluded[number], 1)
        known = TopicHorizons([rule])
        return lambda name: known.of(name) > 0

    # --- Last messages

    def _search(self) -> None:
        """Search for last messages, and measure expired ones, in a thread.

        Do nothing if such a thread runs, or if the last search took long.
        """
        if self._thread is not None or time.monotonic() < self._search_at:
            return
        segments = self._catalog.segments()
        end = segments[-1].end_offset if segments else 0
        known = self._known
        tasks = [
            (number, known[number] if number in known else RuleHorizon((), (), 0, {}))
            for number, rule in enumerate(self._rules)
            if rule.last_only and (number not in known or known[number].horizon < end)
        ]
        thread = threading.Thread(
            target=self._find, args=(tasks, end), name="penstock-retention", daemon=True
        )
        with self._starting:
            if not self._stopping:
                thread.start()
                self._thread = thread

    def _find(self, tasks: list[tuple[int, RuleHorizon]], end: int) -> None:
        began = time.monotonic()
        found = {}
        try:
            for number, known in tasks:
                new = last_messages(
                    self._catalog, self._wanted(number), known.horizon, end, rest=self._check_stop
                )
                last = {
                    topic: offset
                    for topic, offset in (known.last or {}).items()
                    if offset >= self._catalog.horizon
                }
                found[number] = RuleHorizon(
                    self._rules[number].topics, self._excluded[number], end, {**last, **new}
                )
        except _Stopped:
            return
        except (OSError, LogError) as error:
            log.warning("last messages not found", error=str(error))
        with contextlib.suppress(OSError, LogError, _Stopped):  # it is measured again
            self._expired.measure({**self._known, **found})
        seconds = time.monotonic() - began
        self._later(lambda: self._found(found, seconds))

    def _found(self, found: dict[int, RuleHorizon], seconds: float) -> None:
        self._thread = None
        self._search_at = time.monotonic() + seconds / RETENTION_SEARCH_SHARE
        with tried_again():
            self._advance(found)

    def _check_stop(self) -> None:
        """Raise _Stopped if the log is being closed."""
        if self._stopping:
            raise _Stopped

    def stop(self) -> None:
        """Give up the search that runs, and wait for its thread."""
        with self._starting:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join()


def _cut(sizes: Sequence[int], room: int, *, is_first: bool) -> int | None:
    """Return the last row group that does not fit into `room` with those behind it, None if all do.

    The newest one with a message of the rule always fits if it is the first.
    """
    total = 0
    for place in reversed(range(len(sizes))):
        is_newest = is_first and not total
        if sizes[place] and not is_newest and total + sizes[place] > room:
            return place
        total += sizes[place]
    return None
