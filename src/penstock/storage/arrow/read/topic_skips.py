"""Finds the row groups that may have a wanted topic, by the indexes of segments."""

import threading
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from penstock.patterns import pattern_expression
from penstock.ports import TopicFilter
from penstock.storage.arrow.format.index import Index

__all__ = ["TopicSkips", "wanted_topics"]


class _Hits(NamedTuple):
    """The wanted ones among the topics of an index, as a boolean for each."""

    of: Index
    topics: pa.BooleanArray


class TopicSkips:
    """Remembers for each filter which topics of its last segment are wanted. Any thread may ask.

    A reader goes through one segment after the other, so that one for each filter is enough.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits: WeakKeyDictionary[TopicFilter, _Hits] = WeakKeyDictionary()

    def find(
        self, index: Index, topics: TopicFilter, *, first: int, last: int, count_max: int
    ) -> list[int]:
        """Return the numbers of up to `count_max` row groups from `first` to `last`, in order."""
        hits = self._known(index, topics)
        return index.first_with(hits, first=first, last=last, count_max=count_max)

    def _known(self, index: Index, topics: TopicFilter) -> pa.BooleanArray:
        names = index.topics
        with self._lock:
            known = self._hits.get(topics)
        hits = known.topics if known is not None and known.of is index else None
        done = 0 if hits is None else len(hits)
        if hits is None or done < len(names):  # the active segment gets new topics
            more = wanted_topics(topics, names[done:])
            hits = more if hits is None else pa.concat_arrays([hits, more])
            with self._lock:
                self._hits[topics] = _Hits(index, hits)
        return hits


def wanted_topics(topics: TopicFilter, names: Sequence[str]) -> pa.BooleanArray:
    """Tell for each name whether it is wanted. RE2 matches wildcards without interpreter lock."""
    column = pa.array(names, pa.utf8())
    found = pc.is_in(column, value_set=pa.array(sorted(topics.names), pa.utf8()))
    if not topics.wildcards:
        return found
    expression = "|".join(map(pattern_expression, topics.wildcards))
    try:
        return pc.or_(found, pc.match_substring_regex(column, rf"(?s)\A(?:{expression})\z"))
    except pa.ArrowInvalid:  # too large for RE2
        return pa.array([topics.wants(name) for name in names], pa.bool_())
