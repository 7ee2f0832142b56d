"""Security events are written as JSON lines, within bounds, and contain no secret."""

import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CannotAudit
from penstock.limits import AUDIT_LIST_ENTRIES_MAX, AUDIT_TEXT_CHARACTERS_MAX
from penstock.ports import AuditEvent
from penstock.server.audit_changes import record_changes
from penstock.server.audit_log import AuditLog
from penstock.server.audit_repeats import Repeats
from penstock.server.config import (
    AnonymousConfig,
    AuditConfig,
    BasicConfig,
    BrokerConfig,
    Config,
    DataConfig,
    PrincipalConfig,
    RoleConfig,
    RuleConfig,
)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines: the last one may still be being written."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def until_written(path: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 5
    while len(found := lines(path) if path.exists() else []) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.005)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "audit.jsonl"


@pytest.fixture
def audit(path: Path) -> Iterator[AuditLog]:
    made = AuditLog(path)
    yield made
    made.close()


def refuse(audit: AuditLog, number: int = 0, **more: Any) -> None:
    fields = {
        "principal": "p",
        "peer": f"10.0.0.1:{1000 + number}",
        "protocol": "x",
        "action": "publish",
        "name": f"t/{number}",
        **more,
    }
    audit.record(AuditEvent.REFUSED, **fields)


def test_an_event_is_a_line_of_a_file_that_others_cannot_read(audit: AuditLog, path: Path) -> None:
    refuse(audit)
    (found,) = until_written(path, 1)
    assert found.pop("time").endswith("Z")
    assert found == {
        "event": "refused", "principal": "p", "peer": "10.0.0.1:1000", "protocol": "x",
        "action": "publish", "name": "t/0",
    }  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_text_of_clients_is_escaped_and_cut(audit: AuditLog, path: Path) -> None:
    for text in ("a\nb\r\x1b[2J\x00\x7f\x85\u2028", "\ud800", "x" * 10_000):
        refuse(audit, name=text)
    audit.record(AuditEvent.RULES_CHANGED, added=["y" * 10_000] * 10_000)
    found = until_written(path, 4)
    assert found[0]["name"] == "a\nb\r\x1b[2J\x00\x7f\x85\u2028"
    assert found[1]["name"] == "\ud800"
    assert found[2]["name"] == "x" * AUDIT_TEXT_CHARACTERS_MAX
    assert found[3]["added"] == ["y" * AUDIT_TEXT_CHARACTERS_MAX] * AUDIT_LIST_ENTRIES_MAX
    data = path.read_bytes()
    assert data.count(b"\n") == 4
    assert all(byte == 10 or 32 <= byte < 127 for byte in data)


def test_like_events_are_counted_and_others_are_not_hidden(path: Path) -> None:
    audit = AuditLog(path)
    for number in range(4137):
        refuse(audit, number)
    refuse(audit, principal="q")
    refuse(audit, peer="10.0.0.2:1")
    refuse(audit, action="subscribe")
    audit.record(AuditEvent.LOGIN_FAILED, peer="10.0.0.1:1", protocol="x", method="token")
    audit.close()
    found = lines(path)
    assert len(found) == 10
    assert [each["name"] for each in found[:5]] == [f"t/{number}" for number in range(5)]
    summary = {
        "principal": "p", "peer": "10.0.0.1", "protocol": "x", "action": "publish",
        "event": "refused", "repeated": 4132,
    }  # fmt: skip
    assert summary.items() <= found[-1].items()


def test_the_count_is_written_when_the_window_is_over(path: Path) -> None:
    audit = AuditLog(path, repeats=Repeats(window_seconds=0.1, repeats_max=1))
    for number in range(10):
        refuse(audit, number)
    found = until_written(path, 2)
    assert [each.get("repeated") for each in found] == [None, 9]
    refuse(audit)
    assert "repeated" not in until_written(path, 3)[2]
    audit.close()


def test_acts_on_different_things_are_all_written() -> None:
    repeats = Repeats(repeats_max=1)
    act = {"principal": "ann", "act": "deleteTopic", "outcome": "done"}
    event = AuditEvent.ADMINISTERED
    assert [repeats.admit(event, {**act, "name": name}, 0.0) for name in "abca"] == [
        True, True, True, False,
    ]  # fmt: skip
    many = [{**act, "names": [name]} for name in "aba"]
    assert [repeats.admit(event, each, 0.0) for each in many] == [True, True, False]
    ((_, rest), _) = sorted(repeats.ended(100.0), key=str)
    assert (rest["act"], rest["repeated"]) == ("deleteTopic", 1)


def test_kinds_are_bounded_for_each_event() -> None:
    repeats = Repeats(kinds_max=10, repeats_max=2)
    admitted = [
        repeats.admit(AuditEvent.LOGIN_FAILED, {"peer": f"10.0.{n >> 8}.{n & 255}:1"}, 0.0)
        for n in range(1000)
    ]
    assert sum(admitted) == 12
    assert repeats.admit(AuditEvent.REFUSED, {"peer": "10.0.0.1:1"}, 0.0)
    assert all(repeats.admit(AuditEvent.RULES_CHANGED, {}, 0.0) for _ in range(100))
    (summary,) = repeats.ended(60.0)
    assert summary == (AuditEvent.LOGIN_FAILED, {"peer": "(many)", "repeated": 988})
    assert not repeats.ended(1e9)
    assert repeats.admit(AuditEvent.LOGIN_FAILED, {"peer": "new"}, 61.0)


def test_files_are_bounded_in_size_and_number(path: Path) -> None:
    audit = AuditLog(path, bytes_max=10_000, files_max=3)
    for number in range(500):
        audit.record(AuditEvent.CONFIGURATION_CHANGED, changed=[f"{number}" + "x" * 200])
    audit.close()
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    found = [line for name in reversed(names) for line in lines(path.with_name(name))]
    numbers = [int(line["changed"][0].rstrip("x")) for line in found]
    assert numbers == list(range(numbers[0], 500))
    for each in path.parent.iterdir():
        assert each.stat().st_size <= 10_000
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_a_file_that_was_renamed_is_left_after_reopen(audit: AuditLog, path: Path) -> None:
    refuse(audit)
    until_written(path, 1)
    moved = path.with_name("moved")
    path.rename(moved)
    audit.reopen()
    refuse(audit, principal="q")
    assert [each["principal"] for each in until_written(path, 1)] == ["q"]
    assert len(lines(moved)) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_disk_that_hangs_delays_no_caller_and_drops_are_counted(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)  # nobody reads from it, so a write blocks once it is full
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit = AuditLog(path, waiting_max=50, bytes_max=1 << 40)
    started = time.process_time()
    for number in range(3000):
        audit.record(AuditEvent.CONFIGURATION_CHANGED, changed=[f"{number}" + "x" * 200])
    assert time.process_time() - started < 2
    os.set_blocking(reader, True)
    found = bytearray()
    draining = threading.Thread(target=lambda: found.extend(iter_bytes(reader)))
    draining.start()
    audit.close()
    draining.join(5)
    os.close(reader)
    events = [json.loads(line) for line in bytes(found).splitlines()]
    assert events[-1]["event"] == "dropped"
    assert len(events) - 1 + events[-1]["repeated"] == 3000


def iter_bytes(reader: int) -> Iterator[int]:
    while data := os.read(reader, 65536):
        yield from data


def test_a_file_that_cannot_be_opened_is_an_error_of_the_operator(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for place in (tmp_path, tmp_path / "link"):
        with pytest.raises(CannotAudit, match=r"set audit\.file"):
            AuditLog(place)
    assert not (tmp_path / "elsewhere").exists()


def test_the_file_is_in_the_data_folder_unless_it_is_set() -> None:
    data = DataConfig(folder="data")
    memory = BrokerConfig(durability="memory")
    assert Config(data=data).audit_file == "data/audit.jsonl"
    assert Config(data=data, broker=memory).audit_file is None
    assert Config(data=data, audit=AuditConfig(file="")).audit_file is None
    assert Config(broker=memory, audit=AuditConfig(file="/x")).audit_file == "/x"


def test_a_reload_is_described_without_secrets(audit: AuditLog, path: Path) -> None:
    reads = RuleConfig(allow=("subscribe",), topics=("a/#", "b"))
    hides = RuleConfig(deny=("subscribe", "hook"), topics=("a/x",))
    basic = BasicConfig(username="ada", password_hash="hash-of-hunter2")  # noqa: S106
    old = Config(
        principal=(
            PrincipalConfig(name="stays", token="hunter1", rule=(reads,)),  # noqa: S106
            PrincipalConfig(name="goes", token="hunter2"),  # noqa: S106
            PrincipalConfig(name="same", token="hunter3"),  # noqa: S106
        )
    )
    new = Config(
        principal=(
            PrincipalConfig(name="stays", basic=basic, rule=(hides, reads), roles=("r",)),
            PrincipalConfig(name="comes", token="hunter4", rule=(reads,)),  # noqa: S106
            PrincipalConfig(name="same", token="hunter3"),  # noqa: S106
        ),
        role=(RoleConfig(name="r", rule=(hides,)),),
        anonymous=AnonymousConfig(default="deny"),
    )
    record_changes(audit, old, new, changed=["principal"], needs_restart=["http.address"])
    found = until_written(path, 6)
    for each in found:
        del each["time"]
    assert found[:2] == [
        {
            "event": "configuration-changed",
            "changed": ["principal"],
            "needs_restart": ["http.address"],
        },
        {
            "event": "principals-changed",
            "added": ["comes"],
            "removed": ["goes"],
            "credentials_changed": ["stays"],
        },
    ]
    assert {each["owner"]: (each["added"], each["removed"]) for each in found[2:]} == {
        "anonymous": (["default deny"], []),
        "principal comes": (["allow subscribe on a/# b"], []),
        "principal stays": (["deny subscribe hook on a/x", "role r"], []),
        "role r": (["deny subscribe hook on a/x"], []),
    }
    assert b"hunter" not in path.read_bytes()
