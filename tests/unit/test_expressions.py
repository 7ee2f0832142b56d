"""Regular expressions of users: whole names, in linear time, and the other threads go on."""

import re
import string
import threading
import time

import pytest

from penstock.limits import (
    EXPRESSION_BYTES_MAX,
    EXPRESSION_STATES_MAX,
    PATTERN_LEVELS_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from penstock.patterns import compile_pattern
from penstock.ports.expressions import check_expression, matches
from penstock.ports.selection import Selection

NAMES = ["", "a", "ab", "a/b", "a\nb", "a\n", "b", "xb", "é", "A"]


@pytest.mark.parametrize(
    "text",
    ["a", "a.*", "a|b", ".", "", "(?s)a.b", "(?m)a$", "a$", "^a", "(?i)a", "(?P<n>a)b", "[^/]+", "é",
     "(a|ab)(b|)", "a{1,2}", r"\w+", "[[:alpha:]]+", "[]a]", r"[\]b]"],
)  # fmt: skip
def test_whole_names_match_as_they_do_in_python(text: str) -> None:
    expected = [
        re.fullmatch(text.replace("[:alpha:]", "a-zA-Z"), name) is not None for name in NAMES
    ]
    if text == r"\w+":
        expected[NAMES.index("é")] = False  # RE2's \w, \d and \s are ASCII
    assert matches(text, NAMES) == expected


@pytest.mark.parametrize("character", [*string.punctuation, " ", "\n", "\t", "\0", "é", "漢"])
def test_an_escaped_name_matches_itself_alone(character: str) -> None:
    name = f"a{character}b"
    assert matches(re.escape(name), [name, "ab", "axxb"]) == [True, False, False]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(", r"missing \)"),
        ("a)|(?:b", r"unexpected \)"),
        ("(?=a)b", r"\(\?=.*RE2 has no look-around"),
        ("(?<=a)b", "RE2 has no look-around"),
        (r"(a)\1", "RE2 has no look-around, backreferences"),
        ("a*+", "possessive"),
        ("(?>a)", "atomic groups"),
        (r"\Qa", "not supported"),
        ("\ud800", "not valid Unicode"),
        ("a" * (EXPRESSION_BYTES_MAX + 1), f"allowed are {EXPRESSION_BYTES_MAX}"),
        ("a{1001}", "repetition"),
        ("(?:a{100}){11}", "repetition"),
        (".{1000}" * 2, f"more than {EXPRESSION_STATES_MAX} states"),
        ("(?:[^x]{0,900}y?)" * 20, f"more than {EXPRESSION_STATES_MAX} states"),
        ("((((.?){9}){9}){9})" * 9, f"more than {EXPRESSION_STATES_MAX} states"),
        (r"(?:[\]]{999}[[:alpha:]]{999})", f"more than {EXPRESSION_STATES_MAX} states"),
    ],
)
def test_an_expression_that_is_not_taken_says_why(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_expression(text)
    with pytest.raises(ValueError, match=problem):
        Selection(expression=text).wanted("a")


@pytest.mark.parametrize(
    "text", ["(.+)+!", "(a|a)*!", "(a*)*!", "(.*){20}!", "(a?){999}a{999}!", ".{1000}!"]
)
def test_the_longest_names_are_tested_while_other_threads_run(text: str) -> None:
    names = ["a" * TOPIC_NAME_BYTES_MAX, "ab" * (TOPIC_NAME_BYTES_MAX // 2)]
    found: list[list[bool]] = []
    thread = threading.Thread(target=lambda: found.append(matches(text, names)), daemon=True)
    thread.start()
    thread.join(20)  # this thread goes on
    assert found == [[False, False]]


def test_each_name_is_tested_once() -> None:
    selection = Selection(expression="a.*")
    assert selection.wanted_names(["a", "b", "a", "ab"]) == [True, False, True, True]
    object.__setattr__(selection, "expression", "(")  # would raise
    assert selection.wanted_names(["ab", "b"]) == [True, False]
    with pytest.raises(ValueError, match="missing"):
        selection.wanted("new")


@pytest.mark.parametrize("wildcard", ["+", "*"])
@pytest.mark.parametrize("end", ["#", "+", "x"])
def test_the_largest_patterns_do_not_backtrack(wildcard: str, end: str) -> None:
    """A topic eight times as long takes about eight times as long, and not the square of it."""
    pattern = compile_pattern("/".join([wildcard] * (PATTERN_LEVELS_MAX - 1) + [end]))
    assert pattern is not None

    def seconds(size: int) -> float:
        names = [
            "/".join(["a" * (size // PATTERN_LEVELS_MAX)] * PATTERN_LEVELS_MAX),
            "/".join(["a" * (size // PATTERN_LEVELS_MAX)] * PATTERN_LEVELS_MAX) + "/y",
            "/" * (PATTERN_LEVELS_MAX - 2) + "a" * size,
            "a" * size,
            "/" * size,
            "." * (PATTERN_LEVELS_MAX - 2) + "a" * size + "/",
        ]
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            for name in names:
                pattern.fullmatch(name)
            best = min(best, time.perf_counter() - started)
        return best

    small, large = seconds(TOPIC_NAME_BYTES_MAX // 8), seconds(TOPIC_NAME_BYTES_MAX)
    assert large < 32 * small + 0.005
    assert large < 0.5


def test_a_selection_of_a_thousand_patterns_tests_a_topic_in_a_time_that_does_not_grow() -> None:
    """As a ratio: of patterns of one shape, 16 times as many take about as long."""

    def seconds(count: int) -> float:
        selection = Selection(patterns=tuple(f"{number}/+/x" for number in range(count)))
        names = [f"{number}/a/y" for number in range(2000)]
        assert not selection.wanted("none")
        started = time.thread_time()
        assert not any(selection.wanted_names(names))
        return time.thread_time() - started

    assert min(seconds(1600) for _ in range(3)) < 5 * min(seconds(100) for _ in range(3))


def test_a_selection_has_patterns_with_and_without_wildcards() -> None:
    selection = Selection(patterns=("a/+", "b.c", "d/#"))
    names = ["a/x", "a.x", "a/x/y", "b.c", "b/c", "d", "d.e/f", ""]
    assert selection.wanted_names(names) == [True, True, False, True, False, True, True, False]
