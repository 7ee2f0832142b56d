"""The topics that a reader of history wants, so that a storage can skip the others."""

from collections.abc import Collection

from penstock.limits import TOPIC_FILTER_PATTERNS_MAX
from penstock.patterns import CanonicalPattern, PatternTree, canonical_pattern, overlaps

__all__ = ["TopicFilter", "new_topic_filter"]


class TopicFilter:
    """Topics that match one of some patterns. It does not change; any thread may ask it."""

    def __init__(self, patterns: Collection[CanonicalPattern]) -> None:
        self.names = frozenset(each.text for each in patterns if each.levels is None)
        """Patterns without wildcards."""
        self.wildcards = tuple(each for each in patterns if each.levels is not None)
        """The other ones."""
        self._overlaps: dict[str, bool] = {}
        self._tree: PatternTree[bool] = PatternTree()
        for each in self.wildcards:
            self._tree.add(each, value=True)

    def overlaps(self, pattern: str) -> bool:
        """Return whether a topic that matches `pattern` may pass this filter."""
        found = self._overlaps.get(pattern)
        if found is None:
            texts = (*self.names, *(each.text for each in self.wildcards))
            found = self._overlaps[pattern] = any(overlaps(each, pattern) for each in texts)
        return found

    def wants(self, name: str) -> bool:
        """Return whether a topic matches one of the patterns."""
        return name in self.names or (bool(self.wildcards) and bool(self._tree.find(name)))


def new_topic_filter(patterns: Collection[str]) -> TopicFilter | None:
    """Return the filter of valid patterns; None if they are too many, or match all topics."""
    if len(patterns) > TOPIC_FILTER_PATTERNS_MAX:
        return None
    canonical = [canonical_pattern(text) for text in patterns]
    if any(each.takes_rest and not each.levels for each in canonical):
        return None
    return TopicFilter(canonical)
