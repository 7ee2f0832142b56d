"""The newest nats-server is asked for once a day, and what was built before serves without a net."""

import os
import time
from pathlib import Path

import pytest

from bench.macro import peers

GO = r"""#!/bin/sh
echo "$1" >> {calls}
{answer}
case $1 in
list) echo {version};;
install)
    printf '#!/bin/sh\necho nats-server: {version}\n' > $GOBIN/nats-server
    chmod +x $GOBIN/nats-server;;
esac
"""


class Go:
    """A program `go` that knows one version of nats-server, and notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "go"
        self._calls = folder / "calls"

    def knows(self, version: str, *, answers: bool = True) -> None:
        answer = "" if answers else "exit 1"
        text = GO.format(calls=self._calls, version=version, answer=answer)
        self._program.write_text(text)
        self._program.chmod(0o700)

    def calls(self) -> list[str]:
        found = self._calls.read_text().split() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return found


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    built = tmp_path / "peers"
    monkeypatch.setattr(peers, "BUILT", built)
    monkeypatch.setattr(peers, "NATS_BUILT", built / "nats-server")
    monkeypatch.setattr(peers, "NATS_CHECKED", built / "nats-checked")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Go(tmp_path)


def let_a_day_pass() -> None:
    before = time.time() - peers.CHECK_SECONDS - 1
    os.utime(peers.NATS_CHECKED, (before, before))


def test_the_newest_nats_server_is_built_and_asked_for_once_a_day(go: Go) -> None:
    go.knows("v2.15.2")
    peers.build_newest_nats()
    assert peers.nats_version() == "v2.15.2"
    assert go.calls() == ["list", "install"]
    go.knows("v2.16.0")
    peers.build_newest_nats()
    assert go.calls() == []
    let_a_day_pass()
    peers.build_newest_nats()
    assert peers.nats_version() == "v2.16.0"
    assert go.calls() == ["list", "install"]
    let_a_day_pass()
    peers.build_newest_nats()
    assert go.calls() == ["list"]


def test_without_a_net_what_was_built_serves_and_is_named(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    go.knows("v2.15.2")
    peers.build_newest_nats()
    let_a_day_pass()
    go.knows("v2.16.0", answers=False)
    peers.build_newest_nats()
    assert peers.nats_version() == "v2.15.2"
    assert "cannot be had" in capsys.readouterr().err
    go.calls()
    peers.build_newest_nats()
    assert go.calls() == ["list"], "it is asked for again as soon as there is a net"
