"""Queries of visitors: what they cannot reach, and what they cannot use up."""

import os
import resource
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

pytest.importorskip("nicegui", reason="the extra console is not installed")

from penstock.console.queries import Database
from penstock.console.query_processes import Query, ShownResult
from penstock.console.query_turns import QueryRefused, QueryTurns

SECRET = "hunter2"  # noqa: S105


def shown(
    text: str,
    topics: dict[str, pa.Table] | None = None,
    folders: dict[str, Path] | None = None,
    *,
    seconds_max: float = 20.0,
) -> ShownResult:
    """Run a query as the console does."""
    query = Query(text, seconds_max=seconds_max)
    try:
        query.named_tables()
        return query.run(topics or {}, folders or {})
    finally:
        query.end()


@pytest.fixture
def requested() -> Iterator[tuple[str, list[str]]]:
    """Run an HTTP server; yield its URL and the paths that were asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", paths
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "text",
    [
        "from read_csv('{file}', max_line_size=5, skip=1)",
        "from read_text('{file}')",
        "from read_json('{file}')",
        "from '{file}'",
        "from read_csv('/proc/self/environ', max_line_size=5)",
        "from read_csv('{url}/x.csv')",
        "from read_parquet('{url}/x.parquet')",
        "from sniff_csv('{file}')",
        "from parquet_metadata('{file}')",
        "from glob('{folder}/*')",
    ],
)
def test_finding_the_tables_of_a_query_reads_no_file(
    tmp_path: Path, requested: tuple[str, list[str]], text: str
) -> None:
    file = tmp_path / "secret.csv"
    file.write_text(f"name\n{SECRET},{SECRET}\n")
    url, paths = requested
    asked = text.format(file=file, folder=tmp_path, url=url)
    try:
        found = str(Database().named_tables(asked))
    except QueryRefused as error:
        found = str(error)
    assert SECRET not in found
    assert "PATH" not in found
    with pytest.raises(QueryRefused, match=r"disabled by configuration|does not exist") as refused:
        shown(asked)
    assert SECRET not in str(refused.value)
    assert not paths


def test_a_file_that_has_no_writer_hangs_no_query(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    began = time.monotonic()
    with pytest.raises(QueryRefused, match="disabled by configuration"):
        shown(f"from read_csv('{tmp_path / 'fifo'}')")
    assert time.monotonic() - began < 15


def test_settings_cannot_be_changed_by_a_query() -> None:
    rows = shown(
        "SELECT name, value FROM duckdb_settings() WHERE name IN ('enable_external_access', "
        "'lock_configuration', 'autoload_known_extensions', 'autoinstall_known_extensions')"
    ).rows
    assert dict(rows) == {
        "enable_external_access": "false",
        "lock_configuration": "true",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
    }


def test_a_result_is_text_with_its_numbers() -> None:
    table = pa.table({"topic": ["a", "b", "a"], "n": [1, 2, 4], "value": [b"\xff", b"{}", None]})
    text = 'SELECT topic, sum(n), 1.5::DOUBLE, max(value) FROM "x/#" GROUP BY 1 ORDER BY 1'
    found = shown(text, {"x/#": table})
    assert found.columns == ["topic", "sum(n)", "CAST(1.5 AS DOUBLE)", 'max("value")']
    assert found.rows == [["a", "5", "1.5", "ff"], ["b", "2", "1.5", "{}"]]
    assert found.numbers == {1: [5.0, 2.0], 2: [1.5, 1.5]}
    assert not found.cut


def test_values_of_all_types_are_shown_by_a_process_that_opens_no_file() -> None:
    text = (
        "SELECT 170141183460469231731687303715884105727::HUGEINT, INTERVAL 3 DAY, {'a': 1}, "
        "MAP {'k': 1}, '101'::BIT, TIME '10:00', TIMESTAMPTZ '2026-11-18 04:53:00+00', "
        "TIMESTAMP_NS '2026-01-01 00:00:00', 'a'::ENUM('a', 'b'), [1, 2], DATE '2026-01-01', "
        "'x'::BLOB, NULL, 'nan'::DOUBLE, '00000000-0000-0000-0000-000000000001'::UUID, "
        "timezone('Europe/Berlin', TIMESTAMPTZ '2026-07-18 04:00:00+00')"
    )
    (row,) = shown(text).rows
    assert row == [
        "170,141,183,460,469,231,731,687,303,715,884,105,727", "3 days, 0:00:00", "{'a': 1}",
        "{'k': 1}", "101", "10:00:00", "2026-11-18 04:53:00.000 UTC", "2026-01-01 00:00:00.000",
        "a", "[1, 2]", "2026-01-01", "x", "", "nan", "00000000-0000-0000-0000-000000000001",
        "2026-07-18 06:00:00.000",
    ]  # fmt: skip


def test_tables_of_a_pipeline_are_read(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"n": list(range(2000))}))
    found = shown("SELECT n FROM t ORDER BY n", folders={"t": tmp_path / "t"})
    assert (len(found.rows), found.rows[-1], found.cut) == (1000, ["999"], True)
    with pytest.raises(QueryRefused, match="disabled by configuration"):
        shown(f"SELECT * FROM t, '{tmp_path}/t/*.parquet'", folders={"t": tmp_path / "t"})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT repeat('x', 50000000) FROM range(40)",
        "SELECT repeat(repeat('x', 40000), 40000)",
        "SELECT list(repeat('x', 1000000)) FROM range(3000)",
    ],
)
def test_a_query_cannot_use_up_memory(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(QueryRefused, match="memory"):
        shown(text)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # KiB, of the largest child
    assert after <= max(before, 1200 * 1024)


def test_a_result_is_bounded() -> None:
    columns = ", ".join(f"repeat('x', 100) AS c{number}" for number in range(400))
    with pytest.raises(QueryRefused, match="too large"):
        shown(f"SELECT {columns} FROM range(1000)")


def test_a_query_that_ignores_the_interrupt_is_killed() -> None:
    began = time.monotonic()
    with pytest.raises(QueryRefused, match="was stopped"):
        shown("SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))", seconds_max=1.0)
    assert time.monotonic() - began < 10


def test_a_process_has_no_secret_of_the_console_and_no_descriptor_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_PASSWORD", SECRET)
    query = Query("SELECT 1")
    try:
        query.named_tables()
        (process,) = (each for each in [query.process] if each is not None)
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        opened = list(Path(f"/proc/{process.pid}/fd").iterdir())
        limits = Path(f"/proc/{process.pid}/limits").read_text()
    finally:
        query.end()
    assert b"PATH=" in environment
    assert SECRET.encode() not in environment
    assert len(opened) <= 4 + 2  # what the interpreter and Arrow have open
    for name, bound in (("open files", "0"), ("file size", "0"), ("cpu time", "22")):
        (line,) = (each for each in limits.splitlines() if each.startswith(f"Max {name} "))
        assert line.removeprefix(f"Max {name} ").split()[0] == bound
    assert not Path(f"/proc/{process.pid}").exists()


def test_queries_run_by_turns() -> None:
    turns = QueryTurns(queries_max=2)
    with turns.take("anna"):
        with pytest.raises(QueryRefused, match="of yours"), turns.take("anna"):
            pass
        with turns.take("ben"), pytest.raises(QueryRefused, match="other"), turns.take("carl"):
            pass
        with turns.take("carl"):
            pass
    with turns.take("anna"):
        pass
