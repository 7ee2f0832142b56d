"""Selections of messages by topic, time, protocol and kind."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.patterns import canonical_pattern, overlaps
from penstock.ports.expressions import matches
from penstock.ports.topic_filter import TopicFilter

__all__ = ["EVERYTHING", "Selection", "TopicTest"]

EVERYTHING: Final = frozenset({"#", ">"})
"""Patterns that select all messages, also those without a topic."""
_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "starts": str.startswith,
    "ends": str.endswith,
    "contains": str.__contains__,
    "equals": str.__eq__,
}


@dataclasses.dataclass(frozen=True)
class TopicTest:
    """A condition on a topic name: it starts with, ends with, contains or equals a text, or not."""

    test: str
    text: str
    negated: bool = False

    def __call__(self, name: str) -> bool:
        """Return whether a name meets the condition."""
        return _TESTS[self.test](name, self.text) is not self.negated


@dataclasses.dataclass(frozen=True)
class Selection:
    """A selection of messages; None is no restriction. It is small and can be pickled.

    If any of `topics`, `patterns` (wildcards) and `expression` (a regular expression) is given, a
    topic must be among `topics`, or match one of `patterns` or the whole `expression`. It must also
    pass all `tests`. The pattern `#` selects all messages, also those without
    a topic. Times are microseconds since the epoch: from `since_us`, before `until_us`.

    The first use raises InvalidPattern, or ValueError for an expression that RE2 does not take.
    """

    topics: frozenset[str] | None = None
    patterns: tuple[str, ...] | None = None
    expression: str | None = None
    tests: tuple[TopicTest, ...] = ()
    protocols: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    since_us: int | None = None
    until_us: int | None = None

    @property
    def by_topic(self) -> bool:
        """Whether the selection restricts topics."""
        return bool(self.tests) or self._subscribes

    @property
    def is_by_name(self) -> bool:
        """Whether topics are selected by their names alone, not by patterns or an expression."""
        return self.topics is not None and self.patterns is None and self.expression is None

    @cached_property
    def _subscribes(self) -> bool:
        """Whether `topics`, `patterns` and `expression` restrict topics."""
        if not EVERYTHING.isdisjoint(self.patterns or ()):
            return False
        subscribed = (self.topics, self.patterns, self.expression)
        return any(each is not None for each in subscribed)

    @property
    def columns(self) -> set[str]:
        """The columns that the selection needs."""
        needed = {
            "topic": self.by_topic,
            "protocol": self.protocols is not None,
            "kind": self.kinds is not None,
            "timestamp": self.since_us is not None or self.until_us is not None,
        }
        return {name for name, is_needed in needed.items() if is_needed}

    @cached_property
    def _filter(self) -> TopicFilter:
        return TopicFilter([canonical_pattern(text) for text in self.patterns or ()])

    @cached_property
    def _overlaps(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _verdicts(self) -> dict[str, bool]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out cached values."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property
    def _names(self) -> frozenset[str] | None:
        """The selected topics, if no more than their names need be compared."""
        if self.topics is None or not self.is_by_name or self.tests:
            return None
        return self.topics - {""}

    def wanted(self, name: str) -> bool:
        """Return whether a topic is selected."""
        if self._names is not None:
            return name in self._names
        verdict = self._verdicts.get(name)
        return self.wanted_names([name])[0] if verdict is None else verdict

    def overlaps(self, pattern: str) -> bool:
        """Return whether a topic that matches `pattern` may be selected."""
        if not self._subscribes or self.expression is not None:
            return True
        found = self._overlaps.get(pattern)
        if found is None:
            texts = (*(self.topics or ()), *(self.patterns or ()))
            found = self._overlaps[pattern] = any(overlaps(each, pattern) for each in texts)
        return found

    def wanted_names(self, names: Sequence[str]) -> list[bool]:
        """Tell for each topic whether it is selected. Each name is tested once, then remembered."""
        if self._names is not None:
            return list(map(self._names.__contains__, names))
        verdicts = self._verdicts
        new = [name for name in dict.fromkeys(names) if name not in verdicts]
        if new:
            matching: Collection[str] = ()
            if self.expression is not None and self._subscribes:
                hits = matches(self.expression, new)
                matching = {name for name, hit in zip(new, hits, strict=True) if hit}
            verdicts.update((name, self._judge(name, matching)) for name in new)
        return [verdicts[name] for name in names]

    def _judge(self, name: str, matching: Collection[str]) -> bool:
        if not all(test(name) for test in self.tests):
            return False
        if not self._subscribes:
            return True
        return name != "" and (
            (self.topics is not None and name in self.topics)
            or name in matching
            or self._filter.wants(name)
        )

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows of a batch that has at least `columns`."""
        masks = []
        if self.by_topic:
            masks.append(_passing(batch.column("topic"), self.wanted_names))
        if self.protocols is not None:
            masks.append(_passing(batch.column("protocol"), _among(self.protocols)))
        if self.kinds is not None:
            masks.append(_passing(batch.column("kind"), _among(self.kinds)))
        kind = pa.timestamp("us", tz="UTC")
        if self.since_us is not None:
            since = pa.scalar(self.since_us, kind)
            masks.append(_rare(pc.greater_equal(batch.column("timestamp"), since)))
        if self.until_us is not None:
            until = pa.scalar(self.until_us, kind)
            masks.append(_rare(pc.less(batch.column("timestamp"), until)))
        if any(mask is False for mask in masks):
            return batch.slice(0, 0)
        whole: pa.Array | None = None
        for mask in masks:
            if mask is not True:
                whole = mask if whole is None else pc.and_(whole, mask)
        return batch if whole is None else batch.filter(whole)


def _among(words: Collection[str]) -> Callable[[Sequence[str]], list[bool]]:
    return lambda values: [value in words for value in values]


def _passing(column: pa.Array, passes: Callable[[Sequence[str]], list[bool]]) -> pa.Array | bool:
    """Return a mask of rows whose value passes; a bool if it is the same for all rows."""
    if pa.types.is_dictionary(column.type) and len(column) < len(column.dictionary):
        column = column.dictionary_decode()  # a few rows of a batch: not all names are needed
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    hits = passes(column.dictionary.to_pylist())
    if all(hits) or not any(hits):
        return bool(hits) and all(hits)
    return _rare(pc.take(pa.array(hits), column.indices))


def _rare(mask: pa.Array) -> pa.Array | bool:
    """Return a mask, or a bool if it is the same for all rows."""
    count = mask.true_count
    return mask if 0 < count < len(mask) else count > 0
