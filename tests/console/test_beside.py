"""`penstock serve --console`, and `penstock console` where it cannot run."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.console.conftest import SECONDS_MAX, until
from tests.support.commands import Commands

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]


def test_serve_starts_the_console_and_stops_it(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    words = [sys.executable, "-m", "penstock.cli", "serve", "--console"]
    words += [
        "--listen",
        "tcp://127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data",
        str(tmp_path / "d"),
    ]
    plain = {name: text for name, text in os.environ.items() if "PENSTOCK" not in name}
    with output.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603
            words,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**plain, "PENSTOCK_CONSOLE_LISTEN": "127.0.0.1:0"},
        )
    try:
        until(lambda: " is at http" in output.read_text() or process.poll() is not None)
        found = re.search(r"The console of (\S+) is at (\S+)", output.read_text())
        assert found is not None, output.read_text()
        assert f"http    {found[1]}" in output.read_text()
        answer = httpx.get(found[2], timeout=SECONDS_MAX)
        assert answer.status_code == 200
        assert "Overview" in answer.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0, output.read_text()
        with pytest.raises(httpx.ConnectError):
            httpx.get(found[2])
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--listen", "7070"), "'7070' is no HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "is no HOST:PORT"),
        (("--listen", "192.0.2.1:0"), "cannot listen on 192.0.2.1:0"),
        (("--url", "tcp://127.0.0.1:7000"), "is not an HTTP URL"),
        (("--url", "https://x", "--ca", "/nonexistent"), "/nonexistent: no such file"),
    ],
)
def test_a_wrong_option_is_told(
    commands: Commands, arguments: tuple[str, ...], problem: str
) -> None:
    done = commands.run("console", *arguments)
    assert done.code == 2
    assert problem in done.err
    assert done.err.count("\n") == 1
