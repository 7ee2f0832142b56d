"""Find the line of each key in TOML, which `tomllib` does not tell.

The text has been parsed before, so it is valid. Keys are written as in error messages:
`listener[1].url` is `url` in the second `[[listener]]`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["key_lines"]

_TOKEN: Final = re.compile(
    r'''
    (?P<string> """(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?\'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<newline> \n )
    | (?P<space> [ \t\r]+ )
    | (?P<mark> [\[\]{}=,.] )
    | (?P<plain> [^\s"'\#\[\]{}=,.]+ )
    ''',
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def key_lines(text: str) -> Mapping[str, int]:
    """Return the line of each key, table and list item of valid TOML, from 1."""
    return _Scan(text).document()


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup not in {"comment", "space"}:
            yield _Token(str(match.lastgroup), match[0], line)
        line += match[0].count("\n")
    yield _Token("end", "", line)


class _Scan:
    """Walks the tokens of a text once and records where each key begins."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._lines: dict[str, int] = {}
        self._counts: dict[str, int] = {}  # tables so far of each array of tables

    def document(self) -> Mapping[str, int]:
        table = ""
        while self._token.kind != "end":
            if self._token.kind == "newline":
                self._at += 1
            elif self._token.text == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _header(self) -> str:
        """Read `[table]` or `[[array]]`; return its key."""
        line = self._token.line
        is_array = self._tokens[self._at + 1].text == "["
        self._at += 2 if is_array else 1
        *outer, last = self._names()
        self._at += 2 if is_array else 1
        key = ""
        for name in outer:
            key = self._record(key, name, line)
            if key in self._counts:
                key = f"{key}[{self._counts[key] - 1}]"
        key = self._record(key, last, line)
        if is_array:
            index = self._counts.get(key, 0)
            self._counts[key] = index + 1
            key = f"{key}[{index}]"
        self._lines[key] = line
        return key

    def _pair(self, table: str) -> None:
        """Read `key = value`."""
        line = self._token.line
        key = table
        for name in self._names():
            key = self._record(key, name, line)
        self._at += 1  # the equals sign
        self._value(key)

    def _names(self) -> list[str]:
        """Read a key, which may have dots, and return its parts."""
        names: list[str] = []
        while self._token.text not in {"=", "]"}:
            kind, text, _ = self._token
            if kind == "string":
                names += tomllib.loads(f"name = {text}").values()
            elif kind == "plain":
                names.append(text)
            self._at += 1
        return names

    def _record(self, table: str, name: str, line: int) -> str:
        key = f"{table}.{name}" if table else name
        self._lines.setdefault(key, line)
        return key

    def _value(self, key: str) -> None:
        """Read a value and the keys in it."""
        match self._token.text:
            case "[":
                self._at += 1
                index = 0
                while self._skip_separators() != "]":
                    item = f"{key}[{index}]"
                    self._lines[item] = self._token.line
                    self._value(item)
                    index += 1
                self._at += 1
            case "{":
                self._at += 1
                while self._skip_separators() != "}":
                    self._pair(key)
                self._at += 1
            case _:
                while not (
                    self._token.kind in {"newline", "end"} or self._token.text in {",", "]", "}"}
                ):
                    self._at += 1

    def _skip_separators(self) -> str:
        """Go to the next item of a list or table, or to its end; return the token there."""
        while self._token.kind == "newline" or self._token.text == ",":
            self._at += 1
        return self._token.text
