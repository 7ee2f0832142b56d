"""What pages of the console show and accept: numbers, times, positions, addresses."""

import asyncio
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra console is not installed")

from penstock.console.cells import cell_text
from penstock.console.charts import chart_options
from penstock.console.logging_in import target_of
from penstock.console.pages.clients import pattern_link
from penstock.console.pages.messages import position_of
from penstock.console.pages.storage import segment_row
from penstock.console.pages.topics import total_text
from penstock.console.queries import Database, run_query
from penstock.console.readable import first_pattern
from penstock.console.sql_box import topics_query
from penstock.console.text import clock_text, count_text, counted_text

# --- Numbers and times ----------------------------------------------------------------------------


def test_numbers_have_one_format() -> None:
    assert [count_text(each) for each in (0, 9999, 12_894, 12_345_678.4)] == [
        "0", "9,999", "12,894", "12,345,678",
    ]  # fmt: skip
    cells = (12_894, True, None, 12_894.5, 1_234_567.8, 0.1234567, 3e20, Decimal("12894.50"))
    assert [cell_text(each) for each in cells] == [
        "12,894", "true", "", "12,894.5", "1,234,568", "0.123457", "3e+20", "12,894.50",
    ]  # fmt: skip
    assert [counted_text(each, "topic") for each in (0, 1, 1200)] == [
        "0 topics", "1 topic", "1,200 topics",
    ]  # fmt: skip


def test_times_of_rows_and_charts_are_utc() -> None:
    assert clock_text("2026-11-18T04:53:12.5+01:00") == "03:53:12"
    assert clock_text(None) == ""
    options = chart_options()
    assert options["useUTC"] is True
    assert options["title"]["text"] == "times in UTC"


def test_times_of_queries_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        query = "SELECT TIMESTAMPTZ '2026-11-18 04:53:00+00' AS t, strftime(t, '%H:%M')"
        (row,) = run_query(query, {}).rows
        shown = [cell_text(each) for each in row]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert shown == ["2026-11-18 04:53:00.000 UTC", "04:53"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (" 1234 ", {"start": 1234}),
        ("12,894", {"start": 12_894}),
        ("04:53", {"time": "2026-11-18T04:53:00+00:00"}),
        ("04:53:07.5", {"time": "2026-11-18T04:53:07.500000+00:00"}),
        ("04:53+01:00", {"time": "2026-11-18T04:53:00+01:00"}),
        ("2026-11-16 14:30", {"time": "2026-11-16T14:30:00+00:00"}),
        ("2026-11-16T14:30+02:00", {"time": "2026-11-16T14:30:00+02:00"}),
        ("", None),
        ("yesterday", None),
        ("25:00", None),
        ("-3", None),
    ],
)
def test_a_position_is_an_offset_or_a_time_of_utc(
    text: str, where: dict[str, object] | None
) -> None:
    assert position_of(text, datetime(2026, 11, 18, 9, tzinfo=UTC)) == where


# --- Lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", ["", "@group=shipping", "@group=shipping,earliest", "@last", "@-15m", "@#12"]
)
def test_a_subscription_leads_to_the_messages_of_its_pattern(start: str) -> None:
    assert pattern_link(f"orders/#{start}") == "/messages?topic=orders%2F%23"


def test_an_at_sign_of_a_name_stays_in_the_link() -> None:
    assert pattern_link("mail/ann@example") == "/messages?topic=mail%2Fann%40example"


def test_a_list_of_topics_says_what_it_counts() -> None:
    assert total_text({"found": 1, "total": 257}) == "1 topic"
    assert total_text({"found": 1200, "total": 1456}) == "1,200 topics"
    assert total_text({"found": None, "total": 9000}) == (
        "9,000 topics in all; in the order of their creation"
    )
    assert total_text({"found": None, "total": None}) == "topics in the order of their creation"


def test_the_offsets_of_a_segment_are_both_those_of_messages() -> None:
    segment = {"base_offset": 0, "end_offset": 1500, "bytes": 1, "last_time": None}
    assert (segment_row(segment)["base"], segment_row(segment)["end"]) == ("0", "1,499")
    assert segment_row({**segment, "end_offset": 0})["end"] == "empty"


# --- Where a page starts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("/messages?topic=orders/new", "/messages?topic=orders/new"),
        ("/topics", "/topics"),
        ("/", "/"),
        ("", "/"),
        ("/login", "/"),
        ("/logout", "/"),
        ("https://evil.example/topics", "/"),
        ("//evil.example/topics", "/"),
        ("///evil.example/topics", "/"),
        (r"/\evil.example", "/"),
        (r"\\evil.example/topics", "/"),
        ("/\t/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("topics", "/"),
        ("/topics/../logout", "/"),
        ("//[evil", "/"),
        ("/topics?x=" + "y" * 2000, "/"),
    ],
)
def test_a_log_in_leads_to_pages_of_this_console_only(address: str, target: str) -> None:
    assert target_of(address) == target


def test_a_query_starts_with_topics_that_the_visitor_may_read() -> None:
    assert Database().named_tables(topics_query('a"b/#')) == ['a"b/#']
    assert topics_query("") == ""


class Api:
    """The API for a principal that may subscribe to some patterns; it may read all topics given."""

    def __init__(self, topics: list[str], *allowed: str) -> None:
        self._topics = topics
        self._allowed = allowed

    async def get(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        if path == "/api/me":
            return {"subscribe": query["topic"] in self._allowed}
        assert path == "/api/topic-levels"
        prefix = query["prefix"]
        below = [each[len(prefix) :] for each in sorted(self._topics) if each.startswith(prefix)]
        if not below:
            return {"levels": []}
        name = below[0].partition("/")[0]
        inside = [each for each in below if each.partition("/")[0] == name]
        return {"levels": [{"name": name, "topics": len(inside), "is_topic": name in inside}]}


@pytest.mark.parametrize(
    ("topics", "allowed", "pattern"),
    [
        (["b/x", "b/y"], ["#"], "#"),
        (["b/x", "b/y"], ["b/#"], "b/#"),
        (["b/c/x", "b/c/y"], ["b/c/#"], "b/c/#"),
        (["b/c/x", "b/c/y"], ["b/c/x", "b/c/y"], "b/c/x"),
        (["b"], ["b"], "b"),
        (["b", "b/x"], ["b", "b/x"], "b"),
        ([], [], ""),
        (["/".join("a" * 40)], [], ""),
    ],
)
def test_a_page_starts_with_a_pattern_that_the_caller_may_subscribe_to(
    topics: list[str], allowed: list[str], pattern: str
) -> None:
    assert asyncio.run(first_pattern(Api(topics, *allowed))) == pattern  # type: ignore[arg-type]
