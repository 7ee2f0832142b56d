"""Log events of a broker: who came and went, what was not allowed; as `key=value` or JSON."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import penstock
from penstock.client import Refused
from tests.support.running import Running

RULES = """
[[listener]]
url = "tcp://127.0.0.1:0"
[anonymous]
[[anonymous.rule]]
allow = ["publish", "subscribe"]
topics = ["open/#"]
"""


def events_of(folder: Path, settings: str) -> str:
    """Let a client come, be refused twice, and go; return what the broker logged."""
    file, errors = folder / "penstock.toml", folder / "errors"
    file.write_text(f'[data]\nfolder = "{folder / "data"}"\n{RULES}{settings}')
    with Running("serve", "--config", file, errors=errors) as broker:
        lines = [broker.line()]
        while lines[-1] != "Ready.":
            lines.append(broker.line())
        found = re.search(r"tcp://127\.0\.0\.1:\d+", "\n".join(lines))
        assert found
        with penstock.connect_sync(found[0], protocol="lamamq", name="press-4") as client:
            client.publish("open/a", b"1")
            for _ in range(2):
                try:
                    client.publish("secret", b"2")
                except Refused:
                    continue
                raise AssertionError("published")
        broker.popen.send_signal(signal.SIGTERM)
        assert broker.popen.wait(20) == 0
    return errors.read_text()


def test_clients_and_refusals_are_events_in_json(tmp_path: Path) -> None:
    text = events_of(tmp_path, '[events]\nformat = "json"\n')
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    names = [each["event"] for each in events]
    assert names[:2] == ["starting", "ready"]
    assert {each["version"] for each in events[:2]} == {penstock.__version__}
    assert events[0]["process"] == events[1]["process"]
    (opened,) = (each for each in events if each["event"] == "client opened")
    (refused,) = (each for each in events if each["event"] == "not allowed")
    (closed,) = (each for each in events if each["event"] == "client closed")
    assert (opened["protocol"], opened["name"]) == ("lamamq", "press-4")
    assert opened["connection"] == closed["connection"]
    assert (refused["act"], refused["name"], refused["host"]) == ("publish", "secret", "127.0.0.1")
    assert {each["level"] for each in (opened, refused, closed)} == {"info"}


def test_a_level_leaves_out_what_is_below_it(tmp_path: Path) -> None:
    lines = events_of(tmp_path, '[events]\nlevel = "warning"\n').splitlines()
    # On a busy machine the event loop may stall, and that is a warning.
    assert [line for line in lines if "event loop stalled" not in line] == []
