"""Measures the expired messages that still take space: only whole segments are removed."""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.storage.arrow.format.topic_horizons import RuleHorizon
from penstock.storage.arrow.read.catalog import Catalog
from penstock.storage.arrow.write.rule_sizes import RuleSizes

__all__ = ["ExpiredBytes"]

log = structlog.get_logger("penstock.log")

_LOG_PART: Final = 0.5
"""Expired messages are reported above this part of the bytes of the log."""
_SEGMENTS_KEPT: Final = 2
"""Expired messages are not reported up to the size of this many segments, which always stay."""
_TOPICS_NAMED: Final = 4


class ExpiredBytes:
    """The bytes of expired messages on the disk, by the number of the rule that expired them."""

    def __init__(self, catalog: Catalog, sizes: RuleSizes, *, segment_bytes_max: int) -> None:
        """`sizes` must be used only by the thread that calls `measure`."""
        self._catalog = catalog
        self._sizes = sizes
        self._bytes_min = _SEGMENTS_KEPT * segment_bytes_max
        self._last: dict[int, tuple[RuleHorizon, array[int]]] = {}
        self._is_much = False
        self.by_rule: Mapping[int, int] = {}
        """Each measurement replaces the mapping; none changes it."""

    def measure(self, rules: Mapping[int, RuleHorizon]) -> None:
        """Measure the bytes that rules have expired; log when they exceed the limits.

        Raise OSError.
        """
        self._sizes.forget_removed()
        self.by_rule = {number: self._expired(number, rule) for number, rule in rules.items()}
        expired, size = sum(self.by_rule.values()), self._catalog.size
        is_much = expired > max(size * _LOG_PART, self._bytes_min)
        if is_much and not self._is_much:
            segments = self._catalog.segments()
            log.warning(
                "expired messages take space",
                bytes=expired,
                log_bytes=size,
                segment=segments[0].base_offset if segments else None,
                topics=self._kept_topics(),
            )
        self._is_much = is_much

    def _expired(self, number: int, rule: RuleHorizon) -> int:
        last = self._sorted_last(number, rule)
        total = 0
        for segment in self._catalog.segments():
            if segment.base_offset >= rule.horizon:
                break
            if segment.end_offset <= rule.horizon:
                rows, size = self._sizes.total(number, segment)
            else:
                index = self._catalog.index(segment)
                below = self._sizes.of(number, segment)[: index.at_offset(rule.horizon)]
                rows, size = (sum(each[column] for each in below) for column in (0, 1))
            kept = bisect_left(last, segment.end_offset) - bisect_left(last, segment.base_offset)
            total += size - size * min(kept, rows) // max(rows, 1)
        return total

    def _sorted_last(self, number: int, rule: RuleHorizon) -> Sequence[int]:
        """Return the offsets of the last messages that a rule keeps, in order."""
        if rule.last is None:
            return ()
        known = self._last.get(number)
        if known is None or known[0] is not rule:
            offsets = array("q")
            column = pa.array(rule.last.values(), pa.int64())
            offsets.frombytes(pc.take(column, pc.sort_indices(column)).buffers()[1])
            known = self._last[number] = rule, offsets
        return known[1]

    def _kept_topics(self) -> list[str]:
        """Return some topics with messages in the oldest segment that have not expired."""
        for segment in self._catalog.segments()[:1]:
            kept = self._catalog.kept(segment)
            if kept is not None:
                names = self._catalog.index(segment).topics
                return [name for name in names if kept(name)][:_TOPICS_NAMED]
        return []
