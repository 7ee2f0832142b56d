"""A vulnerable package fails the audit; a service that knows nothing does not pass it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import audit

LOCK = Path("requirements/x.txt")
GOOD = '{"name": "a", "version": "1", "vulns": []}'
BAD = '{"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}'
UNKNOWN = '{"name": "c", "skip_reason": "not found"}'


def answers(monkeypatch: pytest.MonkeyPatch, *packages: str, error: str = "") -> None:
    """Let pip-audit, which is not ours, give these answers."""
    said = "" if error else f'{{"dependencies": [{", ".join(packages)}]}}'

    def run(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1 if error else 0, said, error)

    monkeypatch.setattr(subprocess, "run", run)


def test_a_known_vulnerability_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, GOOD, BAD, UNKNOWN)
    assert not audit.audit(LOCK)
    said = capsys.readouterr().out
    assert "b 2: PYSEC-1, fixed in 3" in said
    assert "2 packages audited" in said
    assert "not audited: c" in said
    with pytest.raises(SystemExit, match="1"):
        audit.main([str(LOCK)])


def test_packages_without_a_vulnerability_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, GOOD)
    assert audit.audit(LOCK)
    assert "skipped" not in capsys.readouterr().out


@pytest.mark.parametrize("error", ["", "requests.exceptions.ConnectionError: no route"])
def test_a_service_that_knows_nothing_is_skipped_in_one_line(
    error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, UNKNOWN, error=error)
    assert audit.audit(LOCK)
    said = capsys.readouterr().out
    assert said.startswith(f"{LOCK}: audit skipped: ")
    assert said.count("\n") == 1


def test_another_error_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, error="ValueError: bad file")
    with pytest.raises(SystemExit, match=r"pip-audit failed .* bad file"):
        audit.audit(LOCK)
