"""Values are read against the types of their fields; each problem has its key."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.settings import Problems, TomlFile, build, read_settings, setting_types
from penstock.settings.key_lines import key_lines

TEXT = """
[inner]
colour = "blu"
names = ["a", "", 3]
few = []
short = "äöü"
[inner.map]
x = 1
[[item]]
label = "x"
[[item]]
labl = 3
"""


class Item(msgspec.Struct, kw_only=True, frozen=True):
    """An item, whose key in the file is not the name of the attribute."""

    name: str = msgspec.field(name="label")


class Inner(msgspec.Struct, kw_only=True, frozen=True):
    """A table with every kind of constraint."""

    colour: Literal["red", "blue"] = "red"
    names: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    few: Annotated[tuple[int, ...], Meta(min_length=1, max_length=2)] | None = None
    short: Annotated[str, Meta(extra={"bytes_max": 5})] = ""
    map: dict[str, str] = {}


class Whole(msgspec.Struct, kw_only=True, frozen=True):
    """The whole file."""

    inner: Inner = Inner()
    item: tuple[Item, ...] = ()


def read(text: str, *secrets: str) -> tuple[Whole, list[str]]:
    file = TomlFile("f.toml", msgspec.toml.decode(text), key_lines(text))
    problems = Problems(file, secrets=secrets)
    settings = read_settings(file.values, Whole, problems)
    return build(Whole, settings), list(map(str, problems.found))


def test_every_problem_has_its_line_and_key() -> None:
    config, problems = read(TEXT)
    assert problems == [
        'f.toml:3: inner.colour: expected "blue" or "red", got "blu"',
        'f.toml:4: inner.names[1]: expected a string, not empty, got ""',
        "f.toml:4: inner.names[2]: expected a string, not empty, got 3",
        "f.toml:5: inner.few: expected a list of whole numbers, not empty, got an empty list",
        "f.toml:6: inner.short: expected at most 5 bytes, got 6",
        "f.toml:8: inner.map.x: expected a string, got 1",
        'f.toml:12: item[1].labl: unknown key; did you mean "label"?',
        "f.toml:11: item[1].label: missing; expected a string",
    ]
    assert config == Whole()


def test_valid_values_are_kept_under_the_key_of_the_file() -> None:
    config, problems = read('item = [{ label = "x" }]\n[inner]\nfew = [1, 2]\nshort = "äö"\n')
    assert problems == []
    assert config == Whole(item=(Item(name="x"),), inner=Inner(few=(1, 2), short="äö"))
    assert list(setting_types(Whole))[-1] == "item"


def test_a_secret_is_not_repeated() -> None:
    _, (problem,) = read('[inner]\ncolour = "hunter2"\n', "inner.colour")
    assert problem.endswith("got a string that does not fit")
    _, (problem,) = read("[inner.map]\npin = 4711\n", "inner.map")
    assert problem == "f.toml:2: inner.map.pin: expected a string, got a number"


def test_a_key_of_another_source_has_no_line() -> None:
    problems = Problems(TomlFile("f.toml", {}, {"a": 1, "a.b": 2}))
    problems.set_source("a.b", "A__B")
    for key in ("a.b.c", "a.c", "b"):
        problems.add(key, "wrong")
    assert [each.source for each in problems.found] == ["A__B", "f.toml:1", "f.toml"]
