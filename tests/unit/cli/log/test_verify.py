"""`penstock log verify`: one line for each finding, and an exit code to rely on."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.log.findings import finding
from penstock.storage.arrow.format.damage import Damage, Fault
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, contents, flip


def filled(data: Path, *, segments: int = 2) -> WrittenLog:
    with WrittenLog(data, segment_bytes_max=1) as log:
        log.put_many(segments)
    return log


def test_a_sound_log_is_one_line_and_zero(commands: Commands, tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = contents(tmp_path)
    done = commands.run("log", "verify", "--data", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 1
    assert done.out.startswith("All is right: 6 messages in 2 groups of 2 segments, ")
    done = commands.run("log", "verify", "--json", "--data", tmp_path)
    found = json.loads(done.out)
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert (found["right"], found["findings"], found["messages"]) == (True, [], 6)
    assert (found["segments"], found["groups"]) == (2, 2)
    assert 0 < found["bytes"] < sum(path.stat().st_size for path in log.segments())
    assert contents(tmp_path) == before


def test_a_log_that_is_being_written_is_sound(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path / "live", segment_bytes_max=4000) as log:
        for _ in range(3):
            log.put_many(2)
            done = commands.run("log", "verify", "--data", tmp_path / "live")
            assert (done.code, done.out.count("\n")) == (0, 1), done


def test_a_torn_tail_is_named_and_is_no_fault(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path / "live") as log:
        log.put_many(2)
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    path = tmp_path / "copy" / "log" / "0" / log.segments()[0].name
    os.truncate(path, path.stat().st_size - 100)
    done = commands.run("log", "verify", "--data", tmp_path / "copy")
    assert done.code == 0
    torn, summary = done.out.splitlines()
    assert torn.startswith("torn: 00000000000000000000.arrows at byte ")
    assert "nothing in it was acknowledged" in torn
    assert summary.startswith("All is right: 3 messages in 1 groups")
    done = commands.run("log", "verify", "--json", "--data", tmp_path / "copy")
    (found,) = json.loads(done.out)["findings"]
    assert (done.code, found["fault"], found["serious"]) == (0, "torn", False)


def test_damage_says_where_what_and_what_it_means(commands: Commands, tmp_path: Path) -> None:
    path = filled(tmp_path).segments()[0]
    flip(path, path.stat().st_size - 40)
    done = commands.run("log", "verify", "--data", tmp_path)
    assert done.code == 1
    damaged, summary = done.out.splitlines()
    assert damaged.startswith("damaged: 00000000000000000000.arrows at byte ")
    for part in (
        "checksum is wrong",
        "messages 0 to 2 cannot be read",
        "restore the segment from a backup",
    ):
        assert part in damaged
    assert summary.startswith("1 fault: 3 messages in 1 groups of 2 segments, ")
    done = commands.run("log", "verify", "--json", "--data", tmp_path)
    found = json.loads(done.out)
    (finding_of_it,) = found["findings"]
    assert (done.code, found["right"], finding_of_it["serious"]) == (1, False, True)
    assert (finding_of_it["file"], finding_of_it["fault"]) == (path.name, "damaged")
    assert (finding_of_it["first_offset"], finding_of_it["resumes_at"]) == (0, 3)


def test_a_missing_segment_and_a_stale_index_are_faults(commands: Commands, tmp_path: Path) -> None:
    log = filled(tmp_path, segments=3)
    log.segments()[1].unlink()
    log.segments()[0].with_suffix(".index").unlink()
    done = commands.run("log", "verify", "--data", tmp_path)
    assert done.code == 1
    assert "stale index: 00000000000000000000.arrows: " in done.out
    assert "missing segment: before 00000000000000000006.arrows: " in done.out
    assert done.out.splitlines()[-1].startswith("2 faults: ")


def test_a_bad_state_is_a_fault(commands: Commands, tmp_path: Path) -> None:
    (filled(tmp_path).folder / "log.json").write_text("{}")
    done = commands.run("log", "verify", "--data", tmp_path)
    assert done.code == 1
    assert done.out.startswith("bad state: log.json: ")


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_has_its_meaning(fault: Fault) -> None:
    line = finding(Damage(fault, 7, 100, 24, 10, 12, "a reason"))
    assert line.startswith(f"{fault}: ")
    assert line.count("\n") == 0
    assert "a reason; messages 10 to 11 " in line
    assert len(line.rpartition("; ")[2]) > 10


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    log = filled(tmp_path)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock.cli", "log", "verify", "--data", str(log.data)]
    try:
        done = subprocess.run(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=theirs, timeout=20, check=True
        )
        shown = os.read(ours, 65_536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"checking" in shown
    assert done.stdout.startswith(b"All is right: ")
    assert b"checking" not in done.stdout
