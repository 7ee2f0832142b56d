"""The page for operators tells the truth: its file is right, its limits and events are the code's."""

import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import argon2
import pytest

from penstock import limits
from penstock.core.access import Action
from penstock.limits import AUDIT_REPEATS_MAX
from penstock.ports import AuditEvent
from penstock.server.audit_log import AuditLog
from penstock.server.banner import banner
from penstock.server.config import Config
from penstock.server.config_loading import load
from penstock.server.config_reload import RELOADABLE
from penstock.server.credentials import Authenticator
from penstock.server.users_file import read_users
from tests.support.commands import Commands
from tests.support.running import environment

ROOT = Path(__file__).parents[2]
TLS = ROOT / "tests" / "support" / "tls"
PAGE = (ROOT / "docs" / "operating.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECONDS_MAX = 20


def rows(first_cell: str) -> list[list[str]]:
    """The rows of the page's tables whose first cell is of a form."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| ")
    ]
    return [cells for cells in found if re.fullmatch(first_cell, cells[0])]


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's file has the certificate that it names."""
    shutil.copy(TLS / "localhost.pem", tmp_path / "broker.pem")
    shutil.copy(TLS / "localhost.key", tmp_path / "broker.key")
    shutil.copy(TLS / "client-ca.pem", tmp_path / "plant-ca.pem")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text)
    return path


def serve(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock.cli", "serve", *options]
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env={}
    )


def test_the_page_has_a_file() -> None:
    assert BLOCKS


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_every_file_passes_the_check(folder: Path, text: str) -> None:
    result = serve("--check", "--config", str(written(folder, text)))
    assert (result.returncode, result.stderr) == (0, "")
    for listener in tomllib.loads(text).get("listener", []):
        assert listener["url"] in result.stdout


def test_a_broker_is_started_as_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (block,) = [text for language, text in blocks if not language]
    by_make, *others = [shlex.split(line, comments=True) for line in block.splitlines()]
    done = subprocess.run(  # noqa: S603
        [*by_make, "--dry-run"], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX,
        check=True, env=environment(),
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].endswith("penstock serve ")
    written(folder, BLOCKS[0])
    monkeypatch.chdir(folder)
    assert len(others) == 3
    for name, command, *options in others:
        assert (name, command) == ("penstock", "serve")
        result = serve(*options, *([] if "--check" in options else ["--check"]))
        assert (result.returncode, result.stderr) == (0, "")


def test_the_file_needs_its_certificate(tmp_path: Path) -> None:
    result = serve("--check", "--config", str(written(tmp_path, BLOCKS[0])))
    assert result.returncode == 2
    assert "broker.pem" in result.stderr


def test_users_are_managed_as_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "penstock.toml").write_text('[auth]\nusers = "users.toml"\n')
    monkeypatch.chdir(tmp_path)
    commands = Commands(capfd, monkeypatch)
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]
    assert [line[0] for line in lines] == ["penstock"] * 6 + ["kill"]
    for line in lines[:-1]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
        done = commands.run(*line[1:])
        assert done.code == 0, done
    assert [each.name for each in read_users(tmp_path / "users.toml")] == ["press-4"]


def test_the_secrets_are_those_it_says() -> None:
    panel, historian, *_ = tomllib.loads(BLOCKS[0])["principal"]
    assert re.findall(r'# The (\w+) is "([^"]+)"', BLOCKS[0]) == [
        ("password", "change-me"),
        ("key", "change-me-too"),
    ]
    argon2.PasswordHasher().verify(panel["basic"]["password_hash"], "change-me")
    digest = hashlib.sha256(b"change-me-too").hexdigest()
    assert historian["api_key_sha256"] == historian["lamamq"]["key_sha256"] == digest


def test_the_rules_do_what_the_page_says(folder: Path) -> None:
    authenticator = Authenticator(load(written(folder, BLOCKS[0]), environment={}))
    try:
        panel = authenticator.principals["panel"]
        assert panel.may(Action.SUBSCRIBE, "plant/line/#")
        assert not panel.may(Action.SUBSCRIBE, "plant/#")
        assert not panel.may(Action.SUBSCRIBE, "plant/secret/door")
        assert not panel.may(Action.PUBLISH, "plant/alarms")
        assert authenticator.anonymous.may(Action.PUBLISH, "plant/alarms")
        assert not authenticator.anonymous.may(Action.SUBSCRIBE, "plant/alarms")
        assert authenticator.principals["historian"].may(Action.SUBSCRIBE, "#")
    finally:
        authenticator.close()


def test_every_right_is_on_the_page() -> None:
    shown = [cells[0].strip("`") for cells in rows(r"`[a-z]+`") if cells[0].strip("`") in [*Action]]
    assert shown == [str(action) for action in Action]


def test_the_audit_log_is_as_shown(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    audit = AuditLog(tmp_path / "audit.jsonl")
    fields = {"principal": "panel", "protocol": "fleximq", "action": "request"}
    for number in range(AUDIT_REPEATS_MAX + 4132):
        peer = f"10.0.0.7:{(49152 + number) % 65536}"
        name = f"lights/{number + 3}"
        audit.record(AuditEvent.REFUSED, **fields, peer=peer, name=name)
    audit.close()
    lines = [json.loads(line) for line in audit.path.read_text().splitlines()]
    first, last = (json.loads(line) for line in shown.splitlines())
    for expected, found in ((first, lines[0]), (last, lines[-1])):
        assert expected | {"time": ""} == found | {"time": ""}
        assert len(expected["time"]) == len(found["time"])


def test_every_audit_event_is_on_the_page() -> None:
    (section,) = re.findall(r"^## Audit log\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    named = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    }
    assert named == {str(event) for event in AuditEvent}


def test_the_listeners_are_announced_as_shown(folder: Path) -> None:
    config = load(written(folder, BLOCKS[0]), environment={})
    said = banner(config, [each.address for each in config.listener], version="1")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [line for line in said.splitlines() if "  listen  " in line] == shown.splitlines()


def test_limits_that_can_be_set_have_the_defaults_shown() -> None:
    shown = rows(r"`(broker|limits)\.\w+`")
    assert len(shown) == 19
    for name, value, *_ in shown:
        table, _, key = name.strip("`").partition(".")
        if value != "half of the memory":
            assert number(value) == getattr(getattr(Config(), table), key)


def test_limits_that_cannot_be_set_are_those_of_the_code() -> None:
    shown = {name.strip("`"): number(value) for name, value, *_ in rows(r"`[A-Z0-9_]+`")}
    assert shown == {name: getattr(limits, name) for name in shown}
    prefixes = ("WEBSOCKET_", "IPC_", "STDIO_")
    assert {name for name in vars(limits) if name.startswith(prefixes)} <= shown.keys()


def test_what_a_reload_changes_is_named() -> None:
    (section,) = re.findall(
        r"^## Changing a running broker\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL
    )
    for setting in RELOADABLE:
        assert f"`{setting}`" in section or setting.startswith(("principal", "anonymous."))


def test_every_event_that_is_logged_is_named_and_no_other() -> None:
    logged = set()
    source = ROOT / "src" / "penstock"
    for path in source.rglob("*.py"):
        if path.relative_to(source).parts[0] in {"pipeline", "spark"}:
            continue  # other processes than the broker's
        logged |= set(
            re.findall(
                r'(?:log(?:ger)?\.(?:info|warning|error|exception)|RepeatedEvents)\(\s*"([^"]+)"',
                path.read_text(),
            )
        )
    (section,) = re.findall(r"^## Log events\n(.*)", PAGE, re.MULTILINE | re.DOTALL)
    named = set()
    for line in section.splitlines():
        if line.startswith("| `"):
            named |= set(re.findall(r"`([^`]+)`", line.split("|")[1]))
    assert named == logged


def test_links_lead_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", PAGE):
        file = ROOT / "docs" / (target or "operating.md")
        assert file.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\s-]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in anchors, anchor
