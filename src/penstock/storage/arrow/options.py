"""What an operator may say about a log."""

import dataclasses

from penstock.limits import LOG_CACHE_BYTES_MAX, LOG_WAITING_BYTES_MAX, SEGMENT_BYTES_MAX
from penstock.storage.arrow.durability import DurabilityRules

__all__ = ["LogOptions", "Retention"]


@dataclasses.dataclass(frozen=True, slots=True)
class Retention:
    """What is kept; None is no bound."""

    age_seconds_max: float | None = None
    bytes_max: int | None = None

    @property
    def bounded(self) -> bool:
        """Whether anything is ever removed."""
        return self.age_seconds_max is not None or self.bytes_max is not None


@dataclasses.dataclass(frozen=True, slots=True)
class LogOptions:
    """What an operator may say about a log. Without bounds everything is kept for ever."""

    durability: DurabilityRules = dataclasses.field(default_factory=DurabilityRules)
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    waiting_bytes_max: int = LOG_WAITING_BYTES_MAX
    cache_bytes_max: int = LOG_CACHE_BYTES_MAX
    retention: Retention = dataclasses.field(default_factory=Retention)
