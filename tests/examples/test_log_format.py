"""The page on the log's format tells the truth: its programs run, its tables and bytes are the log's."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest

from penstock import limits
from penstock.storage.arrow.format import log_state as state
from penstock.storage.arrow.format.damage import Fault
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.index import SCHEMA as INDEX_SCHEMA
from penstock.storage.arrow.write import topic_journal as topics
from penstock.storage.files import Files
from penstock.storage.schema import SCHEMA
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, message

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "log-format.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECONDS_MAX = 30


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> WrittenLog:
    """The log of the page: two messages, and one more group behind them."""
    data = tmp_path_factory.mktemp("here") / "penstock-data"
    files = Files()
    folder = partition_folder(data, 0)
    files.make_folder(folder)
    state.save_state(files, folder, state.LogState(0x0123456789AB, 0))
    with WrittenLog(data) as log:
        log.put(message("plant/a", b"21.5", 0), message("plant/b", b"on", 1))
        log.put(message("plant/b", b"off", 2))
    return log


def section(title: str) -> str:
    (found,) = re.findall(rf"^##+ {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def table(text: str, number: int = 0) -> dict[str, str]:
    """First and second cells of a table: what it names, and what that is."""
    tables = re.findall(r"^\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in tables[number].splitlines()
    ]
    return {first.strip("`"): second for first, second, *_ in rows}


# --- Programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "'value': b'off'"),
        (1, "[('plant/a', 1), ('plant/b', 2)]"),
        (2, "plant/b"),
        (3, "2 row groups are good\n"),
    ],
    ids=["pyarrow", "duckdb", "polars", "checking"],
)
def test_a_program_runs(log: WrittenLog, number: int, said: str) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAMS[number]],
        cwd=log.data.parent, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


def test_three_lines_are_three_lines_and_use_nothing_of_ours() -> None:
    lines = [[line for line in program.splitlines() if line] for program in PROGRAMS[:3]]
    assert [len(each) for each in lines] == [3, 3, 3]
    for program in PROGRAMS:
        assert "penstock" not in {
            name.name for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Import)
            for name in node.names
        }  # fmt: skip


def test_the_program_that_checks_finds_every_flipped_bit(log: WrittenLog, tmp_path: Path) -> None:
    (path,) = log.segments()
    data = path.read_bytes()
    copy = tmp_path / "penstock-data" / "log" / "0" / path.name
    copy.parent.mkdir(parents=True)
    for place in (len(data) - 20, len(data) // 2):
        copy.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROGRAMS[3]],
            cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode != 0, place


# --- Bytes ------------------------------------------------------------------------------------


def test_the_bytes_of_the_group_are_those_of_a_log(log: WrittenLog) -> None:
    (path,) = log.segments()
    data = path.read_bytes()
    index = pa.ipc.open_stream(path.with_suffix(".index")).read_all()
    group = data[index["position"][0].as_py() :]
    (block,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = block.splitlines()
    assert len(lines) > 10
    for line in lines:
        place, octets = int(line[:4], 16), line[6:54].split()
        found = [f"{octet:02x}" for octet in group[place : place + len(octets)]]
        shown = [octet for octet in octets if octet != "CC"]
        assert [
            each for each, octet in zip(found, octets, strict=True) if octet != "CC"
        ] == shown, line


def test_a_group_can_be_read_with_the_head_alone(log: WrittenLog) -> None:
    (path,) = log.segments()
    data = path.read_bytes()
    index = pa.ipc.open_stream(path.with_suffix(".index")).read_all().to_pylist()
    head = data[: index[0]["position"]]
    group = data[index[1]["position"] :][: index[1]["size"]]
    (row,) = pa.ipc.open_stream(head + group).read_all().to_pylist()
    assert (row["offset"], row["topic"], row["value"]) == (2, "plant/b", b"off")


def test_the_lines_of_the_journal_are_read(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```\n(.*?)^```$", section(r"topics\.journal"), re.MULTILINE | re.DOTALL
    )
    first, *_ = lines = block.splitlines(keepends=True)
    for line in lines:
        assert int(line[:8], 16) == google_crc32c.value(line[9:-1].encode())
    (tmp_path / "topics.journal").write_text(first)
    assert topics.read_topics(Files(), tmp_path).names == [
        ("sensors/kitchen", bytes.fromhex(first.split()[1]))
    ]
    (tmp_path / "topics.journal").write_text(block)
    found = topics.read_topics(Files(), tmp_path)
    assert found.names == [("sensors/attic", b"")]
    assert found.owners == {"sensors/attic": "panel"}
    assert found.deleted == ["sensors/kitchen"]


# --- Tables -----------------------------------------------------------------------------------


def test_the_head_has_the_keys_of_the_table(log: WrittenLog) -> None:
    metadata = pa.ipc.open_stream(log.segments()[0]).schema.metadata
    assert [key.decode() for key in metadata] == list(table(section("The head")))
    assert metadata[b"penstock.log_id"] == b"0123456789ab"


def test_a_group_has_the_keys_of_the_table(log: WrittenLog) -> None:
    reader = pa.ipc.open_stream(log.segments()[0])
    metadata = reader.read_next_batch_with_custom_metadata().custom_metadata
    named = table(section("A row group"))
    assert [key.decode() for key in metadata] == list(named)
    for key, meaning in named.items():
        digits = int(re.match(r"\d+", meaning)[0])  # type: ignore[index]
        assert len(metadata[key]) == digits


def test_the_columns_are_those_of_the_schema() -> None:
    assert table(section("The columns")) == {field.name: str(field.type) for field in SCHEMA}


def test_the_index_is_the_one_described(log: WrittenLog) -> None:
    text = section("The index")
    assert table(text) == {field.name: str(field.type) for field in INDEX_SCHEMA}
    reader = pa.ipc.open_stream(log.segments()[0].with_suffix(".index"))
    assert [key.decode() for key in reader.schema.metadata] == list(table(text, 1))


def test_log_json_has_the_keys_of_the_table(log: WrittenLog) -> None:
    found = re.findall(r'"(\w+)":', (log.folder / "log.json").read_text())
    assert found == list(table(section(r"log\.json")))


def test_every_fault_is_named_and_no_other() -> None:
    assert list(table(section("Recovery"))) == [str(fault) for fault in Fault]


def test_limits_are_those_of_the_code() -> None:
    for text, value in [
        ("256 MiB", limits.SEGMENT_BYTES_MAX),
        ("65,536 messages", limits.BLOCK_ROWS_MAX),
        ("4 MiB of values", limits.BLOCK_BYTES_MAX),
        ("1,024 topics", limits.INDEX_TOPICS_MAX),
    ]:
        assert text in PAGE.replace("\n", " ")
        number, unit = text.split(" ")[:2]
        assert int(number.replace(",", "")) << (20 if unit == "MiB" else 0) == value


def test_the_commands_are_those_that_exist() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "log", "--help"],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
    )  # fmt: skip
    named = set(re.findall(r"^penstock log (\w+)", section("Commands"), re.MULTILINE))
    assert named == set(re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE))


def test_the_commands_run_as_shown(
    log: WrittenLog,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = Commands(capfd, monkeypatch)
    monkeypatch.setenv("PENSTOCK_DATA__FOLDER", str(log.data))
    lines = [line for line in section("Commands").splitlines() if line.startswith("penstock ")]
    lines = [line for line in lines if "kafka://" not in line]  # test_kafka_moving runs it
    said = {}
    for line in lines:
        command, _, _ = line.replace("DIR [--topics]", f"{log.data} --topics").partition("    ")
        _, *arguments = shlex.split(command)
        done = commands.run(*arguments)
        assert (done.code, done.err) == (0, ""), line
        said[arguments[1]] = done.out
    assert "plant/b" in said["ls"]
    assert said["read"] == ""  # nothing came in the last quarter of an hour
    assert said["verify"].startswith("All is right: 3 messages")
    assert (tmp_path / "out.parquet").exists()


def test_the_files_of_a_log_are_those_of_the_list(log: WrittenLog) -> None:
    block = PAGE.split("```\nDATA/log/<partition>/")[1].split("```")[0]
    named = [line.split()[0].removesuffix("/") for line in block.splitlines()]
    patterns = [re.escape(name).replace("0" * 20, r"\d{20}") for name in named]
    for path in log.folder.iterdir():
        assert any(re.fullmatch(each, path.name) for each in patterns), path.name
