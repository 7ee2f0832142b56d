"""Lines in every command that names protocols."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Commands
from tests.support.http_live import HttpBroker


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpBroker]:
    with HttpBroker(data=tmp_path / "data") as live:
        monkeypatch.setenv("PENSTOCK_URL", f"tcp://127.0.0.1:{live.address[1]}")
        monkeypatch.setenv("PENSTOCK_HTTP", live.url)
        yield live


def test_a_message_goes_out_and_comes_back(commands: Commands, broker: HttpBroker) -> None:
    at = f"lines://127.0.0.1:{broker.address[1]}"
    assert commands.run("pub", "shown/here", "a value", "--url", at).code == 0
    done = commands.run("sub", "shown/#@earliest", "--url", at, "--count", 1, "--json")
    assert done.code == 0, done
    message = json.loads(done.out)
    assert (message["topic"], message["protocol"]) == ("shown/here", "lines")
    assert commands.run("topics", "--url", broker.url).out.count("shown/here") == 1


def test_what_it_cannot_carry_is_refused(commands: Commands, broker: HttpBroker) -> None:
    del broker
    done = commands.run("pub", "a", "b", "--protocol", "lines", "--header", "k=v")
    assert done.code == 2
    assert "lines has no headers" in done.err
    assert "lines has no request" in commands.run("req", "/x", "--protocol", "lines").err


def test_clients_are_listed_by_protocol(commands: Commands, broker: HttpBroker) -> None:
    done = commands.run("clients", "--protocol", "lines", "--url", broker.url)
    assert done.code == 0, done
    assert "lines" in commands.run("clients", "--protocol", "nope", "--url", broker.url).err


def test_its_cases_are_run(commands: Commands, broker: HttpBroker) -> None:
    url = f"tcp://127.0.0.1:{broker.address[1]}"
    done = commands.run("conform", url, "--protocol", "lines")
    assert done.code == 0, done
    assert "3 passed, 0 failed, 0 skipped" in done.out


def test_it_is_measured(commands: Commands, broker: HttpBroker) -> None:
    url = f"tcp://127.0.0.1:{broker.address[1]}"
    done = commands.run(
        "bench", "--url", url, "--protocol", "lines", "--seconds", 0.5, "--size", 20, "--json"
    )
    assert done.code == 0, done
    assert '"lines"' in done.out


def test_a_capture_is_explained(commands: Commands, tmp_path: Path) -> None:
    capture = tmp_path / "capture.bin"
    capture.write_bytes(b"hello me\npub a/b 3\n1 2\nping\n")
    done = commands.run("decode", capture)
    assert done.code == 0, done
    assert "lines" in done.out
    assert re.search(r"pub line", done.out)
    told = commands.run("decode", capture, "--protocol", "lines", "--json")
    assert told.code == 0, told


def test_its_limit_is_in_the_configuration(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text(
        '[limits]\nlines_line_bytes_max = 4096\n[[listener]]\nurl = "tcp://127.0.0.1:0"\nprotocol = "lines"\n'
    )
    done = commands.run("config", "check", "--config", "penstock.toml")
    assert done.code == 0, done
    assert "lines_line_bytes_max" in commands.run("config", "show", "--config", "penstock.toml").out
    Path("penstock.toml").write_text("[limits]\nlines_line_bytes_max = 1\n")
    assert (
        "lines_line_bytes_max" in commands.run("config", "check", "--config", "penstock.toml").out
    )


def test_help_names_it(commands: Commands) -> None:
    for command in ("pub", "sub", "bench", "decode", "clients"):
        assert "lines" in commands.run(command, "--help").out, command
