"""Pages show measured figures only in generated blocks, and every block is what its file says."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench.figures import (
    BLOCK,
    CHART,
    FORMER,
    ROOT,
    TABLES,
    chart,
    figures,
    pages,
    source,
    with_figures,
)
from bench.results import FOLDER, load

RESULTS = sorted(path.stem for path in FOLDER.glob("*.json"))
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
MEASURED = [
    re.compile(pattern)
    for pattern in (
        r"\d[\d.,]*(?: to [\d.,]+)? million(?: \w+){0,4} (?:a|per|in a) second",
        r"\d[\d.,]*(?: million)? ?(?:messages|rows|frames|bytes|[KMG]i?B)?/s\b",
        r"\d[\d.,]* times (?:as|faster|slower|that of|nats|JetStream|live)\b",
        r"(?<![\w.])\d[\d.,]* ?%",
        r"(?<![\w.])\d[\d.,]* ?(?:ns|µs|us|ms)\b",
        r"(?:takes?|took|ready after) \d[\d.,]* s\b",
    )
]
"""Rates, ratios, shares and short times: figures that a benchmark measures."""
name = pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())


def measured_numbers(text: str) -> list[str]:
    """Return the benchmark numbers of a page that stand outside generated blocks and code."""
    for pattern in (BLOCK, FENCE, CODE):
        text = pattern.sub(" ", text)
    return [found[0] for pattern in MEASURED for found in pattern.finditer(text)]


@name
def test_every_block_is_what_its_results_file_says(page: Path) -> None:
    text = page.read_text()
    assert with_figures(text, page) == text, "run: make figures"


@name
def test_every_mark_begins_or_ends_a_block(page: Path) -> None:
    text = page.read_text()
    marks = re.findall(r"<!-- ([\w-]+):(?:begin|end) -->", text)
    assert len(marks) == 2 * len(BLOCK.findall(text))
    assert set(marks) <= TABLES.keys() | figures().keys()


@name
def test_a_measured_number_stands_in_a_block(page: Path) -> None:
    assert measured_numbers(page.read_text()) == [], "put it into bench/results and a block"


@pytest.mark.parametrize(
    "text",
    [
        "it takes 2.6 million messages of 100 bytes in a second",
        "reads 3.4 GB/s",
        "is 7.8 times as fast",
        "saves 3 % of the time",
        "a commit takes 72 ms",
        "the broker is ready after 1.1 s",
    ],
)
def test_a_number_outside_a_block_is_found(text: str) -> None:
    assert measured_numbers(text)
    assert not measured_numbers(f"<!-- x:begin -->{text}<!-- x:end -->")


def test_a_changed_result_changes_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "README.md"
    text = page.read_text()

    def other(file: str) -> dict[str, object]:
        record = load(file)
        record["date"] = "2001-02-03T04:05:06Z"
        return record

    monkeypatch.setattr("bench.figures.load", other)
    assert "Measured 2001-02-03" in with_figures(text, page)


@pytest.mark.parametrize("file", FORMER)
def test_a_run_of_a_former_program_says_in_what_it_differs(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, sentence = FORMER[file]
    record = load(file)
    monkeypatch.setattr("bench.figures.load", lambda _: record)
    record["results"] = [{}]
    assert source(file, ROOT / "docs/performance.md").endswith(f"/{file}.json). {sentence}")
    record["results"] = [{column: 1}]
    assert source(file, ROOT / "docs/performance.md").endswith(f"/{file}.json).")


def test_latency_that_is_not_measured_is_no_number() -> None:
    def row(system: str, **latency: float) -> dict[str, Any]:
        cell = {"durability": "memory", "value_bytes": 100, "subscribers": 1, "system": system}
        return {**cell, "latency": {"10": {"per_second": 1000.0, **latency}}}

    figures = {"messages": 1200, "p50_us": 1.0, "p90_us": 2.0, "p99_us": 3.0}
    head = {"versions": {}, "load_of": "nats-server or JetStream"}
    text = TABLES["broker-latency"].render(
        [
            head,
            row("rheos2", **figures, p999_us=4.0),
            row("nats", **figures),
            row("redis", p50_us=1.0, p99_us=3.0, p999_us=4.0),
            row("mosquitto"),
        ]
    )
    assert text.splitlines()[-1].endswith("| 1 / 3 / 4 | 1 / 3 / – | 1 / 3 / – | cannot |")  # noqa: RUF001


def test_every_table_is_on_the_page_about_performance() -> None:
    shown = {found["name"] for found in BLOCK.finditer((ROOT / "docs/performance.md").read_text())}
    assert shown >= TABLES.keys()


def test_the_chart_is_what_its_results_file_says() -> None:
    assert CHART.read_text() == chart(), "run: make figures"


def test_the_readme_has_one_table_of_figures() -> None:
    assert len(BLOCK.findall((ROOT / "README.md").read_text())) == 1


def test_every_results_file_is_shown() -> None:
    assert {file for file, _ in TABLES.values()} == set(RESULTS)


@pytest.mark.parametrize("file", RESULTS)
def test_a_results_file_has_date_and_commit(file: str) -> None:
    record = load(file)
    for each in [record] if "date" in record else record["results"]:
        datetime.strptime(each["date"], "%Y-%m-%dT%H:%M:%SZ")  # noqa: DTZ007
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", each["commit"])
