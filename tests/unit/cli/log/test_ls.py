"""`penstock log ls`, and what all `log` commands say of a folder that is no log."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.common.columns import size_text
from penstock.cli.common.output import time_text
from penstock.cli.log.options import DATA_DEFAULT
from penstock.server.config import Config
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, contents

COMMANDS = [("ls",), ("read",), ("verify",), ("export", "out.parquet")]


def filled(data: Path, groups: int = 3) -> WrittenLog:
    """A segment for each group of three messages."""
    with WrittenLog(data, segment_bytes_max=1) as log:
        log.put_many(groups)
    return log


def test_segments_are_listed_with_their_offsets_times_and_state(
    commands: Commands, tmp_path: Path
) -> None:
    log = filled(tmp_path, 2)
    with WrittenLog(tmp_path) as live:
        live.put_many(4)
        before = contents(tmp_path)
        done = commands.run("log", "ls", "--data", tmp_path)
        assert contents(tmp_path) == before
    assert (done.code, done.err) == (0, "")
    title, *lines, total = done.out.splitlines()
    assert title.split() == [
        "BASE", "END", "MESSAGES", "GROUPS", "SIZE", "FIRST", "LAST", "STATE",
    ]  # fmt: skip
    cells = [re.split(r" {2,}", line.strip()) for line in lines]
    assert [(base, end, count, groups) for base, end, count, groups, *_ in cells] == [
        ("0", "3", "3", "1"), ("3", "6", "3", "1"), ("6", "18", "12", "4"),
    ]  # fmt: skip
    assert cells[0][5:] == ["2025-11-15T09:46:40.000000Z", "2025-11-15T09:46:40.002000Z", "sealed"]
    assert [each[-1] for each in cells] == ["sealed", "sealed", "active"]
    sizes = [each[4] for each in cells[:2]]
    assert sizes == [size_text(path.stat().st_size) for path in log.segments()[:2]]
    assert total.startswith("3 segments, 18 messages, ")
    assert f"offsets 0 up to 18; log {log.log.log_id:012x}, partition 0" in total


def test_json_is_one_object(commands: Commands, tmp_path: Path) -> None:
    log = filled(tmp_path)
    done = commands.run("log", "ls", "--json", "--data", tmp_path)
    found = json.loads(done.out)
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert (found["horizon"], found["end"], found["messages"]) == (0, 9, 9)
    assert found["log_id"] == f"{log.log.log_id:012x}"
    assert found["size"] == sum(path.stat().st_size for path in log.segments())
    assert (found["damage"], len(found["segments"])) == ([], 3)
    assert found["segments"][1] == {
        "base_offset": 3, "end_offset": 6, "messages": 3, "groups": 1,
        "size": log.segments()[1].stat().st_size, "first": "2025-11-15T09:46:40.003000Z",
        "last": "2025-11-15T09:46:40.005000Z", "sealed": True, "damage": 0,
    }  # fmt: skip
    assert "topics" not in found


def test_topics_are_listed_when_asked_for(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(2, topics=("a", "a", "x\x1b[2J"))
        log.put_many(1, topics=("a",))
    done = commands.run("log", "ls", "--topics", "--data", tmp_path)
    assert re.search(r"^ +7 +3  a$", done.out, re.MULTILINE), done.out
    assert re.search(r"^ +2 +2  x\\x1b\[2J$", done.out, re.MULTILINE), done.out
    done = commands.run("log", "ls", "--topics", "--json", "--data", tmp_path)
    assert json.loads(done.out)["topics"] == [
        {"topic": "a", "groups": 3, "messages": 7},
        {"topic": "x\x1b[2J", "groups": 2, "messages": 2},
    ]


def test_damage_is_shown_and_ends_with_one(commands: Commands, tmp_path: Path) -> None:
    filled(tmp_path).segments()[1].unlink()
    done = commands.run("log", "ls", "--data", tmp_path)
    assert done.code == 1
    assert "missing segment: before 00000000000000000006.arrows" in done.out
    assert "messages 3 to 5 cannot be read" in done.out
    done = commands.run("log", "ls", "--json", "--data", tmp_path)
    assert done.code == 1
    (damage,) = json.loads(done.out)["damage"]
    assert (damage["fault"], damage["first_offset"], damage["resumes_at"], damage["serious"]) == (
        "missing segment", 3, 6, True,
    )  # fmt: skip


def test_an_empty_log_is_listed(commands: Commands, tmp_path: Path) -> None:
    WrittenLog(tmp_path).close()
    done = commands.run("log", "ls", "--data", tmp_path)
    assert done.out.startswith("0 segments, 0 messages, 0 bytes; offsets 0 up to 0; ")


# --- What all commands have in common ---------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
def test_a_folder_without_a_log_is_one_line_that_says_what_to_do(
    commands: Commands, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = commands.run("log", *command, "--data", tmp_path / "nowhere").error_line()
    assert "nowhere: there is no such folder; give a broker's --data folder" in line
    line = commands.run("log", *command, "--data", tmp_path).error_line()
    assert "it has no log/0" in line
    line = commands.run("log", *command).error_line()
    assert "penstock-data: there is no such folder" in line
    filled(tmp_path)
    line = commands.run("log", *command, "--data", tmp_path, "--partition", 3).error_line()
    assert "it has no log/3" in line
    assert not Path("out.parquet").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
def test_a_later_format_is_one_line(
    commands: Commands, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = filled(tmp_path).folder / "log.json"
    state.write_text(state.read_text().replace('"format":1', '"format":2'))
    line = commands.run("log", *command, "--data", tmp_path).error_line()
    assert "has log format 2" in line


def test_a_file_that_may_not_be_read_is_one_line(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = filled(tmp_path).segments()[1].name
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != name)
    line = commands.run("log", "ls", "--data", tmp_path).error_line()
    assert f"{name}: permission denied" in line


def test_the_folder_comes_from_the_environment_as_for_the_broker(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(DATA_DEFAULT) == Config().data.folder
    filled(tmp_path)
    monkeypatch.setenv("PENSTOCK_DATA__FOLDER", str(tmp_path))
    assert commands.run("log", "ls").out.count("sealed") == 3


def test_help_names_the_commands_and_is_fast() -> None:
    program = (
        "import sys; sys.argv = ['penstock', 'log', '--help']\n"
        "from penstock.cli.main import main\n"
        "try: main()\n"
        "finally: print(*[name for name in sys.modules if name in ('pyarrow', 'rich.progress')])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=True
    )
    for command, *_ in COMMANDS:
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("\n\n"), "nothing heavy is loaded"


def test_times_and_sizes_are_written_for_people() -> None:
    assert time_text(1) == "1970-01-01T00:00:00.000001Z"
    assert time_text(None) == "-"
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 30, 2 << 40)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB",
    ]  # fmt: skip
