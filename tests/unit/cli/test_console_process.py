"""The console beside a broker: what it gets of the broker's environment."""

import subprocess
from typing import Any

import pytest

from penstock.cli.console_process import ConsoleProcess

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "one",
    "PENSTOCK_STORAGE__KAFKA__PASSWORD": "two",
    "GOOGLE_APPLICATION_CREDENTIALS": "three",
}


def test_the_console_gets_no_secrets_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []

    def popen(*_: object, **options: Any) -> None:
        started.append(options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    for name, value in {**SECRETS, "PENSTOCK_TOKEN": "charts", "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    ConsoleProcess().start("http://127.0.0.1:1")
    (options,) = started
    assert not SECRETS.keys() & options["env"].keys()
    assert (options["env"]["PENSTOCK_TOKEN"], options["env"]["LANG"]) == ("charts", "C.UTF-8")
    assert "PENSTOCK_CONSOLE_LISTEN" not in options["env"]
    assert options["close_fds"]
