"""Settings of a storage: durability by topic, retention, segment and buffer sizes."""

import dataclasses
from collections.abc import Sequence

from penstock._kernels.topics import TopicTable
from penstock.limits import (
    INDEX_CACHE_BYTES_MAX,
    LOG_CACHE_BYTES_MAX,
    LOG_RETENTION_SECONDS,
    LOG_RETENTION_SECONDS_MIN,
    LOG_WAITING_BYTES_MAX,
    RETENTION_SEGMENT_BYTES_MIN,
    RETENTION_SEGMENTS,
    SEGMENT_BYTES_MAX,
    TIER_CACHE_BYTES_MAX,
)
from penstock.model import Durability
from penstock.patterns import compile_pattern

__all__ = ["DurabilityRules", "LogOptions", "Retention", "TierOptions", "TopicRetention"]


class DurabilityRules:
    """Durability by topic: a default, and patterns that override it. The first match decides."""

    def __init__(
        self,
        default: Durability = Durability.FSYNC,
        patterns: Sequence[tuple[str, Durability]] = (),
    ) -> None:
        """Raise InvalidPattern."""
        self.default = default
        self._patterns = [
            (text, compile_pattern(text), durability) for text, durability in patterns
        ]
        self._of_topic = bytearray()

    def of(self, name: str) -> Durability:
        """Return the durability of a topic."""
        for text, expression, durability in self._patterns:
            if text == name if expression is None else expression.fullmatch(name):
                return durability
        return self.default

    def table(self, topics: TopicTable) -> bytearray | None:
        """Return the durability of every topic by its number; None if all have the default."""
        if not self._patterns:
            return None
        known = self._of_topic
        if len(known) < len(topics):
            known = bytearray(known)  # the kernel may hold the old one
            known += bytes(
                self.of(topics.name(number)) if topics.is_live(number) else self.default
                for number in range(len(known), len(topics))
            )
            self._of_topic = known
        return known


@dataclasses.dataclass(frozen=True, slots=True)
class TopicRetention:
    """Bounds on what is kept of some topics, by patterns; None is no bound.

    With `last_only`, only the last message of each topic is kept.
    """

    topics: tuple[str, ...]
    age_seconds_max: float | None = None
    bytes_max: int | None = None
    last_only: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Retention:
    """Bounds on what is kept; None is no bound. Of `rules`, the first that matches applies too."""

    age_seconds_max: float | None = None
    bytes_max: int | None = None
    rules: tuple[TopicRetention, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether any bound is set."""
        bounds = (self.age_seconds_max, self.bytes_max)
        return bool(self.rules) or any(each is not None for each in bounds)

    def segment_bytes(self, segment_bytes_max: int) -> int:
        """Return the size at which a segment ends, so that the log keeps `bytes_max`."""
        if self.bytes_max is None:
            return segment_bytes_max
        share = max(self.bytes_max // RETENTION_SEGMENTS, RETENTION_SEGMENT_BYTES_MIN)
        return min(segment_bytes_max, share)

    @property
    def segment_us(self) -> int | None:
        """The age at which a segment ends, in microseconds; None if it may have any."""
        if self.age_seconds_max is None:
            return None
        return int(self.age_seconds_max * 1_000_000) // RETENTION_SEGMENTS

    @property
    def interval_seconds(self) -> float:
        """Time between two searches for expired segments."""
        ages = [self.age_seconds_max, *(rule.age_seconds_max for rule in self.rules)]
        shortest = min((each for each in ages if each is not None), default=None)
        if shortest is None:
            return LOG_RETENTION_SECONDS
        share = shortest / RETENTION_SEGMENTS
        return min(max(share, LOG_RETENTION_SECONDS_MIN), LOG_RETENTION_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class TierOptions:
    """An object store for closed segments. `local` bounds the local copies; None is no bound."""

    url: str
    local: Retention = dataclasses.field(default_factory=Retention)
    cache_bytes_max: int = TIER_CACHE_BYTES_MAX


@dataclasses.dataclass(frozen=True, slots=True)
class LogOptions:
    """Settings of a log. Without a retention bound every message is kept."""

    durability: DurabilityRules = dataclasses.field(default_factory=DurabilityRules)
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    waiting_bytes_max: int = LOG_WAITING_BYTES_MAX
    cache_bytes_max: int = LOG_CACHE_BYTES_MAX
    index_cache_bytes_max: int = INDEX_CACHE_BYTES_MAX
    retention: Retention = dataclasses.field(default_factory=Retention)
    tier: TierOptions | None = None
