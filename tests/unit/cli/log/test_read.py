"""`penstock log read`: lines, JSON, ranges, and what is no range."""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.common.text import text_of
from penstock.model import Kind
from penstock.protocols.fleximq import FLEXIMQ
from penstock.storage.schema import RECORD_COLUMNS, SCHEMA
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, contents, flip, message


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine messages in three segments; topics `plant/a` and `plant.b` take turns."""
    folder = tmp_path_factory.mktemp("data")
    with WrittenLog(folder, segment_bytes_max=1) as log:
        log.put_many(3, topics=("plant/a", "plant.b"))
    return folder


def read_offsets(commands: Commands, *arguments: object) -> list[int]:
    done = commands.run("log", "read", *arguments)
    assert (done.code, done.err) == (0, ""), done
    return [int(line.partition("\t")[0]) for line in done.out.splitlines()]


def test_a_line_has_seven_fields(commands: Commands, data: Path) -> None:
    done = commands.run("log", "read", "--data", data)
    assert (done.code, done.err) == (0, "")
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert len(lines) == 9
    assert lines[4] == [
        "4", "2025-11-15T09:46:40.004000Z", "plant/a", "somebody", "herald", "publish", "4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], range(9)),
        (["plant/a"], [0, 2, 4, 6, 8]),
        (["plant/b"], []),
        (["plant/+"], range(9)),
        (["#"], range(9)),
        (["other/#"], []),
        (["--from", "earliest"], range(9)),
        (["--from", "4"], range(4, 9)),
        (["--from", "9"], []),
        (["--to", "4"], range(4)),
        (["--from", "2", "--to", "7"], range(2, 7)),
        (["--from", "7", "--to", "2"], []),
        (["--from", "2025-11-15T09:46:40.005Z"], range(5, 9)),
        (["--from", "2025-11-15T10:46:40.004500+01:00"], range(5, 9)),
        (["--to", "2025-11-15T09:46:40.005Z"], range(5)),
        (["--from", "2200-01-01"], []),
        (["--from", "-15m"], []),
        (["--from", "-2000w"], range(9)),
        (["--count", "2"], [0, 1]),
        (["--count", "0"], []),
        (["plant/a", "--from", "1", "--count", "2"], [2, 4]),
    ],
)
def test_a_range_and_a_pattern_choose(
    commands: Commands, data: Path, arguments: list[str], expected: list[int]
) -> None:
    assert read_offsets(commands, *arguments, "--data", data) == list(expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "10"], "offset 10 is not taken yet; the next message gets 9"),
        (["--to", "10"], "offset 10 is not taken yet"),
        (["--from", "yesterday"], "'yesterday' is no position in a log"),
        (["--from", "x@earliest"], "is no position in a log"),
        (["--to", "2025-13-01"], "is no position in a log"),
        (["a/#/b"], "a/#/b"),
        ([""], "PATTERN"),
        (["--value", "text", "--json"], "base64"),
        (["--value", "octal"], "octal"),
        (["--count", "-1"], "--count"),
    ],
)
def test_what_cannot_be_is_one_line(
    commands: Commands, data: Path, arguments: list[str], said: str
) -> None:
    assert said in commands.run("log", "read", *arguments, "--data", data).error_line()


def test_an_offset_below_the_horizon_is_one_line(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
    for path in log.folder.glob("0" * 20 + ".*"):
        path.unlink()
    line = commands.run("log", "read", "--from", 1, "--data", tmp_path).error_line()
    assert "offset 1 is no longer kept; the first that is kept is 3" in line
    assert read_offsets(commands, "--data", tmp_path) == [3, 4, 5, 6, 7, 8]


def test_json_has_all_columns_of_a_record(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put(
            message(
                "plant/a", b"\x00\xff", 3, protocol=FLEXIMQ, kind=Kind.REPLY,
                headers=(("path", b"/x"), ("path", b"\xfe")), correlation="r", status=200,
            )
        )  # fmt: skip
        log.put_many(1)
    first, *others = commands.run("log", "read", "--json", "--data", tmp_path).out.splitlines()
    assert [json.loads(line)["offset"] for line in others] == [1, 2, 3]
    row = json.loads(first)
    assert list(row) == SCHEMA.names[:RECORD_COLUMNS]
    identifier = row.pop("message_id").replace("-", "")
    assert identifier == f"{log.log.log_id:012x}" + "8000" + "8" + "0" * 15
    assert row == {
        "key": None, "value": base64.b64encode(b"\x00\xff").decode(), "topic": "plant/a",
        "partition": 0, "offset": 0, "timestamp": "2025-11-15T09:46:40.003000Z",
        "timestampType": 1, "headers": [
            {"key": "path", "value": base64.b64encode(b"/x").decode()},
            {"key": "path", "value": base64.b64encode(b"\xfe").decode()},
        ],
        "protocol": "fleximq", "kind": "reply", "sender": "somebody", "created": None,
        "correlation": "r", "status": 200,
    }  # fmt: skip


def test_values_are_printed_as_asked(commands: Commands, tmp_path: Path) -> None:
    value = b"a\tb\n\x1b[2J\\\xff\xc3\xbc"
    with WrittenLog(tmp_path) as log:
        log.put(message("t\n1", value, sender_name="s\t2"))
    spelled = {
        "text": r"a\tb\n\x1b[2J\\\xffü",
        "hex": value.hex(),
        "base64": base64.b64encode(value).decode(),
    }
    for name, expected in spelled.items():
        line = commands.run("log", "read", "--data", tmp_path, "--value", name).out
        assert line.count("\n") == 1
        assert line.rstrip("\n").split("\t")[2:] == [
            r"t\n1", r"s\t2", "herald", "publish", expected,
        ]  # fmt: skip
    raw = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "penstock.cli", "log", "read", "--value", "raw", "--data", tmp_path],
        capture_output=True, timeout=20, check=True,
    )  # fmt: skip
    assert raw.stdout == value + b"\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"plain", "plain"),
        ("ü☂".encode(), "ü☂"),
        (b"\x80", r"\x80"),
        (b"\xc2\x9b31m", r"\x9b31m"),
        ("\u202eabc".encode(), r"\u202eabc"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"", ""),
    ],
)
def test_nothing_in_a_value_steers_a_terminal(value: bytes, expected: str) -> None:
    assert text_of(value) == expected
    assert expected.isprintable()


def test_a_log_is_read_while_it_is_written(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(2)
        before = contents(tmp_path)
        assert read_offsets(commands, "--data", tmp_path) == list(range(6))
        assert contents(tmp_path) == before
        log.put_many(1)
        assert read_offsets(commands, "--data", tmp_path, "--from", 5) == [5, 6, 7, 8]


def test_damage_is_told_on_standard_error_and_ends_with_one(
    commands: Commands, tmp_path: Path
) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
    flip(log.segments()[1], log.segments()[1].stat().st_size - 20)
    done = commands.run("log", "read", "--data", tmp_path)
    assert done.code == 1
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["0", "1", "2", "6", "7", "8"]
    assert done.err.count("\n") == 1
    assert "messages 3 to 5 cannot be read" in done.err
    assert commands.run("log", "read", "--data", tmp_path, "--from", 6).code == 0


def test_a_reader_that_has_enough_ends_it_quietly(tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        for _ in range(4):
            log.put(*(message("t", bytes(4000)) for _ in range(200)))
    command = [sys.executable, "-m", "penstock.cli", "log", "read", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"0\t")
        process.stdout.close()
        started = time.monotonic()
        assert process.wait(20) == 0
        assert time.monotonic() - started < 20
        assert process.stderr.read() == b""
