"""Finds the row groups that may have a wanted topic, by the indexes of segments."""

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from penstock.patterns import pattern_expression
from penstock.ports import TopicFilter
from penstock.ports.text_columns import text_parts
from penstock.storage.arrow.format.index import Index

__all__ = ["TopicSkips", "wanted_topics"]

_NONE: Final = pa.array([], pa.bool_())


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

    def names(self, index: Index, topics: TopicFilter, number: int) -> Sequence[str] | None:
        """Return the wanted topics that a row group may have; None if they are not known."""
        if not topics.wildcards:
            return sorted(topics.names)
        return index.marked_topics(self._known(index, topics), number)

    def _known(self, index: Index, topics: TopicFilter) -> pa.BooleanArray:
        with self._lock:
            known = self._hits.get(topics)
        hits = known.topics if known is not None and known.of is index else _NONE
        if len(hits) < index.topic_count:  # the active segment gets new topics
            more = wanted_topics(topics, index.topics_from(len(hits)))
            hits = pa.concat_arrays([hits, more])
            with self._lock:
                self._hits[topics] = _Hits(index, hits)
        return hits


def wanted_topics(topics: TopicFilter, names: Sequence[str]) -> pa.BooleanArray:
    """Tell for each name whether it is wanted. RE2 matches wildcards without interpreter lock."""
    if not topics.wildcards:
        return pa.array([name in topics.names for name in names], pa.bool_())
    expression = "|".join(map(pattern_expression, topics.wildcards))
    whole = rf"(?s)\A(?:{expression})\z"
    own = pa.array(sorted(topics.names), pa.utf8())
    try:
        return pa.concat_arrays(
            [
                pc.or_(pc.is_in(part, value_set=own), pc.match_substring_regex(part, whole))
                for part in text_parts(names)
            ]
        )
    except pa.ArrowInvalid:  # too large for RE2
        return pa.array([topics.wants(name) for name in names], pa.bool_())
