"""`penstock log export`: the file, the summary, and what is in the way."""

import json
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from penstock.storage.dictionaries import RECORD_SCHEMA
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, contents, flip


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    with WrittenLog(tmp_path / "data", segment_bytes_max=1) as log:
        log.put_many(3, topics=("plant/a", "plant/b"))
    return log


def test_messages_are_exported_and_read_back_by_three(
    commands: Commands, log: WrittenLog, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    before = contents(log.data)
    done = commands.run("log", "export", out, "--data", log.data)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{out}: 9 messages, ")
    assert contents(log.data) == before
    table = pq.read_table(out)
    assert table.schema.equals(RECORD_SCHEMA)
    values = [b"%d" % offset for offset in range(9)]
    assert table.column("value").to_pylist() == values
    assert pl.read_parquet(out)["value"].to_list() == values
    found = duckdb.read_parquet(str(out)).order('"offset"').project("value").fetchall()
    assert found == [(value,) for value in values]


def test_a_pattern_and_a_range_choose(commands: Commands, log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    done = commands.run(
        "log", "export", out, "plant/a", "--from", 1, "--to", 7, "--data", log.data, "--json"
    )
    found = json.loads(done.out)
    assert found == {
        "file": str(out), "messages": 3, "row_groups": 1, "size": out.stat().st_size,
        "start": 1, "end": 7, "left_out": [],
    }  # fmt: skip
    assert pq.read_table(out).column("offset").to_pylist() == [2, 4, 6]


def test_a_log_is_exported_while_it_is_written(commands: Commands, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with WrittenLog(tmp_path / "data") as log:
        log.put_many(2)
        assert commands.run("log", "export", out, "--data", log.data).code == 0
    assert pq.read_table(out).column("offset").to_pylist() == list(range(6))


def test_a_file_that_is_there_is_replaced_only_when_asked(
    commands: Commands, log: WrittenLog, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    out.write_bytes(b"mine")
    line = commands.run("log", "export", out, "--data", log.data).error_line()
    assert line == f"cannot export to {out}: it exists already; remove it, or give --force"
    assert out.read_bytes() == b"mine"
    assert commands.run("log", "export", out, "--data", log.data, "--force").code == 0
    assert pq.read_metadata(out).num_rows == 9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a/#/b"], "a/#/b"),
        (["--from", "99"], "offset 99 is not taken yet"),
        (["--from", "soon"], "is no position in a log"),
    ],
)
def test_what_cannot_be_is_one_line_and_no_file(
    commands: Commands, log: WrittenLog, tmp_path: Path, arguments: list[str], said: str
) -> None:
    out = tmp_path / "out.parquet"
    done = commands.run("log", "export", out, *arguments, "--data", log.data)
    assert said in done.error_line()
    assert not out.exists()


def test_a_folder_that_is_not_there_is_one_line(
    commands: Commands, log: WrittenLog, tmp_path: Path
) -> None:
    out = tmp_path / "nowhere" / "out.parquet"
    assert (
        f"cannot export to {out}"
        in commands.run("log", "export", out, "--data", log.data).error_line()
    )
    assert "OUT.parquet" in commands.run("log", "export", "--data", log.data).error_line()


def test_what_cannot_be_read_is_left_out_told_and_ends_with_one(
    commands: Commands, log: WrittenLog, tmp_path: Path
) -> None:
    flip(log.segments()[1], log.segments()[1].stat().st_size - 20)
    out = tmp_path / "out.parquet"
    done = commands.run("log", "export", out, "--json", "--data", log.data)
    assert done.code == 1
    assert "messages 3 to 5 cannot be read" in done.err
    (left_out,) = json.loads(done.out)["left_out"]
    assert (left_out["first_offset"], left_out["resumes_at"]) == (3, 6)
    assert pq.read_table(out).column("offset").to_pylist() == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("name", ["out.csv", "out", "out.parquet.gz"])
def test_another_ending_than_parquet_is_one_line_and_no_file(
    commands: Commands, log: WrittenLog, tmp_path: Path, name: str
) -> None:
    line = commands.run("log", "export", tmp_path / name, "--data", log.data, "--force")
    assert "its name must end in .parquet" in line.error_line()
    assert not (tmp_path / name).exists()
