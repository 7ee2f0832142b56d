"""What a subscription matches, level by level."""

import itertools

import pytest

from penstock.errors import InvalidPattern
from penstock.patterns import PatternTree, canonical_pattern, compile_pattern, covers, overlaps

MATCHES = [
    ("a/+", ["a/b", "a.b", "a/"], ["a", "a/b/c", "b/a", "ab/c"]),
    ("a.*", ["a/b", "a.b"], ["a", "a.b.c"]),
    ("+", ["a", "temp"], ["a/b", "a.b"]),
    ("+/+", ["a/b", "a.b", "/"], ["a", "a/b/c"]),
    ("a/+/c", ["a/b/c", "a.b.c", "a//c"], ["a/c", "a/b/b/c"]),
    ("#", ["a", "a/b", "x.y.z"], []),
    (">", ["a", "a/b", "x.y.z"], []),
    ("a/#", ["a", "a/b", "a.b.c", "a/"], ["ab", "b/a", "ab/c"]),
    ("a.>", ["a", "a/b", "a.b.c"], ["ab"]),
    ("+/b/#", ["a/b", "x.b.c.d"], ["b", "a/c/b"]),
    ("a+b/*", ["a+b/c"], ["aab/c", "ab/c"]),
    ("(a|b)/+", ["(a|b)/c"], ["a/c"]),
    ("a/+", ["a/\n"], []),
]


@pytest.mark.parametrize(("pattern", "inside", "outside"), MATCHES)
def test_a_pattern_matches_these_and_not_those(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    expression = compile_pattern(pattern)
    assert expression is not None
    for name in inside:
        assert expression.fullmatch(name), name
    for name in outside:
        assert not expression.fullmatch(name), name


@pytest.mark.parametrize("name", ["a", "a/b", "a.b", "temp+", "#tag/x", "a>b", "é"])
def test_a_name_without_wildcard_levels_is_one_topic(name: str) -> None:
    assert compile_pattern(name) is None


@pytest.mark.parametrize("pattern", ["", "#/a", "a/#/b", ">.a", "a.>.b", "x" * 65_536])
def test_these_match_nothing_and_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)


def matched(pattern: str, names: list[str]) -> set[str]:
    expression = compile_pattern(pattern)
    if expression is None:
        return {name for name in names if name == pattern}
    return {name for name in names if expression.fullmatch(name)}


def test_covers_and_overlaps_agree_with_what_patterns_match() -> None:
    levels = ["a", "b"]
    names = [
        "/".join(parts) for size in range(1, 5) for parts in itertools.product(levels, repeat=size)
    ]
    patterns = [
        "/".join(parts)
        for size in range(1, 4)
        for parts in itertools.product(["a", "b", "+", "#"], repeat=size)
        if "#" not in parts[:-1]
    ]
    for one, other in itertools.product(patterns, repeat=2):
        mine, theirs = matched(one, names), matched(other, names)
        assert overlaps(one, other) is bool(mine & theirs), (one, other)
        # A finite world of two words cannot tell "a or b" from "+", the patterns can.
        if covers(one, other):
            assert theirs <= mine, (one, other)
    for one, other in [
        ("#", "a/+"),
        ("a/#", "a"),
        ("a/#", "a/b/+"),
        ("+/+", "a/+"),
        ("a.+", "a/b"),
    ]:
        assert covers(one, other)
    for one, other in [("a/+", "a/#"), ("a/b", "a/+"), ("a", "#"), ("+", "a/b"), ("a/b", "a.b")]:
        assert not covers(one, other)


def test_a_tree_finds_what_the_expressions_match() -> None:
    names = [
        separator.join(parts)
        for size in range(1, 5)
        for parts in itertools.product(["a", "b", ""], repeat=size)
        for separator in "/."
        if any(parts) or size > 1
    ]
    patterns = [
        "/".join(parts)
        for size in range(1, 4)
        for parts in itertools.product(["a", "b", "+", "*", "#", ">"], repeat=size)
        if not {"#", ">"} & set(parts[:-1]) and {"+", "*", "#", ">"} & set(parts)
    ]
    tree: PatternTree[str] = PatternTree()
    patterns = sorted({canonical_pattern(pattern).text for pattern in patterns})
    for pattern in patterns:
        tree.add(canonical_pattern(pattern), pattern)
    left = set(patterns)
    for removed in (patterns[:0], patterns[::3], patterns):
        for pattern in removed:
            if pattern in left:
                tree.remove(canonical_pattern(pattern), pattern)
                left.discard(pattern)
        for name in names:
            found = tree.find(name)
            assert len(found) == len(set(found))
            assert set(found) == {p for p in left if name in matched(p, [name])}, name
    assert not tree


def test_wildcards_have_a_bound_on_their_levels_and_plain_names_have_not() -> None:
    assert compile_pattern("/".join(["+"] * 128)) is not None
    with pytest.raises(InvalidPattern):
        compile_pattern("/".join(["+"] * 129))
    assert compile_pattern("/".join(["a"] * 5000)) is None
