"""`[tracing]`: off by default, and only with the packages that it needs."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.server.config import Config
from penstock.server.config_loading import load

ENDPOINT = "http://127.0.0.1:4318/v1/traces"


def loaded(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "penstock.toml"
    file.write_text(f"[tracing]\n{text}\n")
    return load(file)


def test_traces_are_off_by_default_and_on_with_a_collector(tmp_path: Path) -> None:
    assert load().tracing.endpoint == ""
    found = loaded(tmp_path, f'endpoint = "{ENDPOINT}"\nevery = 1000').tracing
    assert (found.endpoint, found.every, found.publishers) == (ENDPOINT, 1000, True)


@pytest.mark.parametrize("text", ['endpoint = "127.0.0.1:4318"', "every = -1"])
def test_a_wrong_setting_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"tracing\.{text.partition(' ')[0]}"):
        loaded(tmp_path, text)


def test_the_extra_is_named_if_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.config_checks.is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"tracing\.endpoint: .*penstock-broker\[tracing\]"):
        loaded(tmp_path, f'endpoint = "{ENDPOINT}"')
