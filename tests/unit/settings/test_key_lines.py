"""The line of each key.

In these documents `@` is replaced by the number of the line it stands in,
so the parsed values tell which line each key is in.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings.key_lines import key_lines

ROOT = Path(__file__).parents[3]

PLAIN = """
# [not.a.table]
top = @  # key = 3
[broker]
sessions_max = @
  spaced   =   @
"quoted key" = @
'literal' = @
"esc\\u0061ped" = @
a.b.c = @
a.b.d = @

[ herald . channels ]
7 = @
[herald]
x = @
"""
ARRAYS = """
[[listener]]
url = @
[[listener]]
url = @
[listener.inner]
x = @
[[listener.rule]]
x = @
[[listener.rule]]
x = @
[[listener]]
[[listener.rule]]
x = @
"""
INLINE = """
table = { a = @, b = { c = @ }, "d" = [@, @] }
list = [@, @,
  @, # ] comment [
  { x = @, y = [ @ ] },

  @ ]
after = @
nested = [[@], [
  @, @,
], []]
last = @
"""
STRINGS = r"""
a = QQQ
[no]
key = 3 \QQQ
QQQ"
b = @
c = '''
[[no]]
\'''
d = @
e = "[x] = # \" {"
f = @
g = '# " ['
h = @
i = ["]", ']', QQQ]
QQQ, @, ''''']''''', @]
j = { x = "}", y = @ }
k = ""
l = @
m = ''
n = QQQQQQ
o = @
p = 2026-11-15 10:00:00
q = @
r = -1.5e3
s = @
""".replace("QQQ", '"' * 3)


def numbered(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(line.replace("@", str(number)) for number, line in enumerate(lines, 1))


def leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, f"{key}[{index}]")
    else:
        yield key, value


def check(document: str) -> int:
    """Compare the lines of all values that are line numbers; return how many there are."""
    text = numbered(document)
    lines = key_lines(text)
    found = [(key, value) for key, value in leaves(tomllib.loads(text)) if type(value) is int]
    assert found == [(key, lines.get(key)) for key, _ in found]
    return len(found)


@pytest.mark.parametrize("document", [PLAIN, ARRAYS, INLINE, STRINGS])
def test_each_key_has_the_line_that_it_stands_in(document: str) -> None:
    assert check(document) == document.count("@")
    assert check(document.replace("\n", "\r\n")) == document.count("@")


def test_tables_and_lists_have_the_line_of_their_header() -> None:
    lines = key_lines(numbered(ARRAYS))
    assert lines["listener"] == lines["listener[0]"] == 2
    assert (lines["listener[1]"], lines["listener[2]"]) == (4, 12)
    assert lines["listener[1].inner"] == 6
    assert (lines["listener[1].rule"], lines["listener[1].rule[1]"]) == (8, 10)
    assert lines["listener[2].rule[0]"] == 13
    lines = key_lines("[a.b]\n[a]\nx = [\n  {},\n]\n")
    assert lines == {"a": 2, "a.b": 1, "a.x": 3, "a.x[0]": 4}


@pytest.mark.parametrize("name", ["penstock.toml", "pipeline.toml"])
def test_every_key_of_an_example_is_found(name: str) -> None:
    for file in (ROOT / "examples").rglob(name):
        text = file.read_text()
        rows = text.splitlines()
        lines = key_lines(text)
        for key, _ in leaves(tomllib.loads(text)):
            if not key.endswith("]"):
                assert key.rpartition(".")[2] in rows[lines[key] - 1]


names = st.sampled_from(["a", "b", '"c d"', "'e'", "f-1"])
values = st.recursive(
    st.sampled_from(["@", '"]"', "'#'", '"""\n[a]\n"""', "true", "1.5"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: "[\n" + ", # x ]\n".join(each) + "\n]"),
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
        st.dictionaries(names, inner, max_size=3).map(
            lambda each: f"{{ {', '.join(f'{name} = {value}' for name, value in each.items())} }}"
        ),
    ),
    max_leaves=8,
)
rows = st.one_of(
    st.tuples(names, values).map(" = ".join),
    st.tuples(names, names, values).map(lambda each: f"{each[0]}.{each[1]} = {each[2]}"),
    names.map("[{}]".format),
    names.map("[[{}]]".format),
    st.tuples(names, names).map(lambda each: f"[{each[0]}.{each[1]}]"),
    st.tuples(names, names).map(lambda each: f"[[{each[0]}.{each[1]}]]"),
    st.just("# comment ["),
)


@given(st.lists(rows, max_size=12))
def test_any_valid_document_has_the_right_lines(document: list[str]) -> None:
    text = ""
    for row in document:  # keep the rows that TOML allows after those before
        try:
            tomllib.loads(numbered(f"{text}{row}\n"))
        except tomllib.TOMLDecodeError:
            continue
        text += f"{row}\n"
    check(text)
