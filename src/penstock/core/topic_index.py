"""Topics by their levels, to find those that a pattern matches without looking at all of them.

The index is a tree. A bucket is a list of a few topics that share their first levels; a bucket that
gets too long becomes a branch, with a bucket for each next level. So the tree has about as many
nodes as topics, however many levels these have.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, Union

from penstock.limits import PATTERN_LEVELS_MAX
from penstock.patterns import PatternNode, PatternTree, children, split_levels

__all__ = ["TopicIndex"]

BUCKET_MAX: Final = 16
"""Topics of a bucket that has not become a branch."""
LEVEL_CHARACTERS_MAX: Final = 64
"""A longer level is indexed by its hash, to save memory."""

_Key: TypeAlias = str | int | None
_Branch: TypeAlias = dict[_Key, Union[list[int], "_Branch"]]
"""Buckets and branches by the next level; under None, the topics that have no further level."""


class TopicIndex:
    """Identifiers of topics, in a tree of their levels."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._root: _Branch = {}
        self.count = 0
        """Topics in the index: all identifiers below."""

    def add_next(self) -> None:
        """Add the next topic."""
        identifier = self.count
        self.count += 1
        levels = split_levels(self._name_of(identifier))
        branch, depth = self._root, 0
        while True:
            key = _key(levels, depth)
            child = branch.get(key)
            if child is None:
                branch[key] = [identifier]
                return
            depth += 1
            if isinstance(child, dict):
                branch = child
                continue
            child.append(identifier)
            if len(child) > BUCKET_MAX and key is not None and depth < PATTERN_LEVELS_MAX:
                branch[key] = self._split(child, depth)
            return

    def _split(self, bucket: list[int], depth: int) -> _Branch:
        branch: _Branch = {}
        for identifier in bucket:
            found = branch.setdefault(_key(split_levels(self._name_of(identifier)), depth), [])
            if isinstance(found, list):
                found.append(identifier)
        return branch

    def walk(self, tree: PatternTree[int], *, below: int) -> Iterator[tuple[int, int]]:
        """Yield the topics below an identifier that patterns match, with the XOR of their values.

        Every topic is yielded once, however many patterns match it. A value of 0 is a step that
        found nothing: the caller may interrupt the walk at each value. Topics may be added
        meanwhile.
        """
        stack = [_enter(self._root, [tree.root], 0, 0)]
        while stack:
            branch, keys, nodes, token, depth = stack[-1]
            if not keys:
                stack.pop()
                continue
            key = keys.pop()
            child = branch.get(key)
            if child is None:
                yield 0, 0
                continue
            following = _below(nodes, key) if nodes and key is not None else nodes
            if not following and not token:
                yield 0, 0
            elif not following and isinstance(child, list):
                # No pattern goes further down: all of these topics match what was found so far.
                for identifier in child[:]:
                    yield (identifier, token) if identifier < below else (0, 0)
            elif key is None and isinstance(child, list):
                here = _sum(node.here for node in nodes)
                for identifier in child[:]:
                    yield (identifier, token ^ here) if identifier < below else (0, 0)
            elif isinstance(child, list):
                yield from self._walk_bucket(child, following, token, depth + 1, below)
            else:
                stack.append(_enter(child, following, token, depth + 1))
                yield 0, 0

    def _walk_bucket(
        self, bucket: list[int], nodes: list[PatternNode[int]], token: int, depth: int, below: int
    ) -> Iterator[tuple[int, int]]:
        """Match the topics of a bucket, whose first `depth` levels lead to `nodes`."""
        for identifier in bucket[:]:
            if identifier >= below:
                break  # identifiers of a bucket ascend
            found, matching = token, nodes
            for level in split_levels(self._name_of(identifier))[depth:]:
                found ^= _sum(node.rest for node in matching)
                matching = children(matching, level)
            found ^= _sum(node.rest for node in matching) ^ _sum(node.here for node in matching)
            yield identifier, found


_State: TypeAlias = tuple[_Branch, list[_Key], list[PatternNode[int]], int, int]


def _enter(branch: _Branch, nodes: list[PatternNode[int]], token: int, depth: int) -> _State:
    """Return the state of a walk at a branch `depth` levels deep, with the keys to look at."""
    token ^= _sum(node.rest for node in nodes)
    if token or sum(len(node.below) for node in nodes) >= len(branch):
        return branch, list(branch), nodes, token, depth
    literals = {_short(level) for node in nodes for level in node.below}
    keys = list(branch) if "+" in literals else [*literals, None]
    return branch, keys, nodes, token, depth


def _sum(tokens: Iterable[int | None]) -> int:
    """Return the XOR of all tokens."""
    found = 0
    for token in tokens:
        found ^= token or 0
    return found


def _key(levels: list[str], depth: int) -> _Key:
    return _short(levels[depth]) if depth < len(levels) else None


def _short(level: str) -> str | int:
    return level if len(level) <= LEVEL_CHARACTERS_MAX else hash(level)


def _below(nodes: list[PatternNode[int]], key: _Key) -> list[PatternNode[int]]:
    """Return the nodes below `nodes` that match a key of a branch."""
    if isinstance(key, str):
        return children(nodes, key)
    found = []
    for node in nodes:
        for level, child in node.below.items():
            if level == "+" or (isinstance(key, int) and _short(level) == key):
                found.append(child)
    return found
