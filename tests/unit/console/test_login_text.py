"""What the console advises after a failed log-in."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the extra console is not installed")

import penstock
from penstock.cli.users import commands
from penstock.console.login_text import login_remedy

OTHER = login_remedy("no such reason", "http")
FOLDER = Path(penstock.__file__).parent
RAISED_IN = ("server", "gateway")
MADE = {"AuthenticationFailed": 1, "log_refused_client": 0}
"""Calls with a reason, and its place among their arguments."""


@pytest.mark.parametrize(
    ("reason", "protocol", "text"),
    [
        ("unknown token", "http", "penstock user token NAME"),
        ("wrong key", "lamamq", "penstock user key NAME --identity"),
        ("wrong password", "fleximq", "penstock user passwd NAME"),
        ("unknown user name", "http", "penstock user add NAME"),
        ("no credentials", "fleximq", "anonymous = true"),
        ("no credentials", "herald", "herald has no credentials"),
        ("no token", "flight", "penstock user token NAME"),
        ("token: Signature has expired", "http", "a new one from its issuer"),
        ("token expired", "fleximq", "a new one from its issuer"),
        ("token: Audience doesn't match", "http", "audience"),
        ("too many wrong passwords, wait 3.0 s", "http", "the right one is accepted"),
        ("ada is not accepted from 10.0.0.1", "http", "`only_from`"),
    ],
)
def test_each_cause_of_a_failed_log_in_has_a_remedy(reason: str, protocol: str, text: str) -> None:
    assert text in login_remedy(reason, protocol)


def test_all_reasons_of_the_broker_have_a_remedy() -> None:
    found = sorted(set(reasons()))
    assert {"wrong key", "unknown issuer", "token expired"} <= set(found)
    assert [reason for reason in found if login_remedy(reason, "http") == OTHER] == []


def reasons() -> Iterator[str]:
    """Yield the texts of the code with which log-ins fail; fields in them are `x`."""
    for name in RAISED_IN:
        for path in (FOLDER / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if called in MADE and len(node.args) > MADE[called]:
                    yield from text_of(node.args[MADE[called]])


def text_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
        if parts[0] != "unknown ":  # of a kind of credentials: each has its own
            yield "".join(parts)


def test_the_commands_of_remedies_exist() -> None:
    text = (FOLDER / "console" / "login_text.py").read_text()
    named = set(re.findall(r"penstock user (\w+)", text))
    assert "token" in named
    assert all(callable(getattr(commands, name)) for name in named)
