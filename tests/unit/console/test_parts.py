"""The parts of the console that need no browser."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest

pytest.importorskip("nicegui", reason="the extra console is not installed")

from penstock.console.api import BrokerApi
from penstock.console.charts import with_gaps
from penstock.console.frames import frames_of
from penstock.console.history import Point, State, point_of
from penstock.console.pages.cluster import silent_nodes
from penstock.console.pages.groups import group_row, lag_text, redrive_text, redriven_text
from penstock.console.pages.messages import note_text
from penstock.console.pages.overview import waiting_text
from penstock.console.payloads import best_form, payload_text, short_text
from penstock.console.problems import find_problems
from penstock.console.queries import Database, run_query
from penstock.console.query_turns import QueryRefused
from penstock.console.refusal_text import limit_note, remedy_text, subject_text, why_text
from penstock.console.retention import retention_text
from penstock.console.security import PageSecurity
from penstock.console.sessions import LogIn, LogIns
from penstock.console.text import bytes_text, duration_text
from penstock.console.topic_tables import TopicTable, read_topic
from penstock.console.warehouse import Warehouse
from penstock.protocols import PROTOCOLS
from tests.support.http_live import HttpBroker

PAGE = (Path(__file__).parents[3] / "docs" / "console.md").read_text()

# --- Retention and nodes --------------------------------------------------------------------------

LOG = {
    "kept": True,
    "kind": "arrow",
    "bytes": 900,
    "segments": [{"last_time": "2026-11-16T10:00:00Z"}],
    "retention": {"age_seconds_max": 7200.0, "bytes_max": 1024},
}
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def test_the_bound_that_removes_messages_is_named() -> None:
    both = "Messages of all topics are kept for 2 h, 1.0 KiB at most: at the moment the"
    assert retention_text(LOG, NOON) == f"{both} age is the nearer bound."
    assert retention_text(LOG, NOON - 3600) == f"{both} size is the nearer bound."
    for age, size, ending in (
        (7200.0, None, "kept for 2 h."),
        (None, 1024, "kept until the log has 1.0 KiB."),
        (None, None, "kept for good: neither an age nor a size is set."),
    ):
        bounds = {"age_seconds_max": age, "bytes_max": size}
        assert retention_text({**LOG, "retention": bounds}, NOON).endswith(ending)
    assert "topic in Kafka" in retention_text({**LOG, "kind": "kafka"}, NOON)
    assert "no log" in retention_text({**LOG, "kept": False}, NOON)


def test_nodes_that_do_not_report_are_named() -> None:
    nodes = [
        {"node": 0, "reported": "2026-11-16T11:59:50Z"},
        {"node": 1, "reported": "2026-11-16T11:58:00Z"},
        {"node": 2, "reported": None},
    ]
    assert silent_nodes(nodes[:1], NOON) == ""
    text = "Without a report for long: node 1 (2 min ago), node 2 (never)."
    assert silent_nodes(nodes, NOON) == text


# --- Messages -------------------------------------------------------------------------------------


def test_a_page_says_how_far_back_it_searched() -> None:
    found = {"problem": None, "kept": True, "horizon": 5, "end": 9000, "messages": [{}]}
    kept = "Offsets 5 to 8,999 are kept."
    assert note_text({**found, "previous": None}, is_backward=True) == kept
    assert note_text({**found, "previous": 70}, is_backward=False) == kept
    assert note_text({**found, "previous": 70, "messages": [{}] * 50}, is_backward=True) == kept
    assert note_text({**found, "previous": 70}, is_backward=True) == (
        f"{kept} Searched back to 70; Older searches on."
    )
    assert note_text({**found, "kept": False}, is_backward=True) == "There is no log."
    assert note_text({**found, "problem": "damaged"}, is_backward=True) == "damaged"


# --- Payloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b'{"a": 1}', "json"),
        (b"21.5", "json"),
        (b"plain text", "text"),
        (msgspec.msgpack.encode({"a": [1, b"\xff"]}), "messagepack"),
        (b"\x93\xff", "hex"),
        (b"\xff\x00", "hex"),
        (b"a\x1b[31m", "hex"),  # text that could steer a terminal is no text
        (b"", "text"),
    ],
)
def test_a_payload_is_shown_in_the_form_that_fits(value: bytes, form: str) -> None:
    assert best_form(value) == form
    assert payload_text(value, form) is not None


def test_messagepack_is_shown_as_json_and_hex_with_offsets() -> None:
    packed = msgspec.msgpack.encode({"a": b"\xff", 1: None})
    assert payload_text(packed, "messagepack") == '{\n  "a": "0xff",\n  "1": null\n}'
    assert payload_text(bytes(range(65, 85)), "hex") == (
        "000000  41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP\n"
        "000010  51 52 53 54                                      QRST"
    )
    assert payload_text(b"\x80\xff", "text") is None
    assert payload_text(b"{", "json") is None


def test_a_short_text_has_one_line() -> None:
    assert short_text(b'{"a":\n 1}') == '{"a": 1}'
    assert len(short_text(b"x" * 1000)) == 120


# --- Frames ---------------------------------------------------------------------------------------


def test_every_protocol_has_a_frame_whose_fields_cover_it() -> None:
    frames = frames_of("plant/a", b"21.5", (("unit", b"C"),))
    assert [frame.protocol for frame in frames] == list(PROTOCOLS.labels)
    for frame in frames:
        assert frame.data, frame
        ends = {field.start + len(field.data) for field in frame.fields}
        assert max(ends) == len(frame.data)
        assert not any("left over" in field.name for field in frame.fields), frame
        assert b"21.5" in frame.data


def test_the_frame_of_a_channel_is_that_of_the_specification() -> None:
    (frame,) = [each for each in frames_of("channel/9", b"hi") if each.protocol == "herald"]
    assert frame.data == bytes.fromhex("feca 10 03000000 09 6869")
    assert frame.note == ""


# --- Problems -------------------------------------------------------------------------------------

NOW = 1_794_852_643.0


def rates(**more: Any) -> dict[str, Any]:
    return {
        "protocols": [], "groups": [], "clients": 0, "syncs": 0, "sync_seconds": 0.0, "seconds": 2.0,
        "slow": [], "slow_count": 0, "problem": None, **more,
    }  # fmt: skip


def group(lag: int, *, dead: int = 0, consumers: str = "members") -> dict[str, Any]:
    return {"name": "job", "lag": lag, "dead": dead, "consumers": consumers}


def points(
    lag: list[int], sync_seconds: float = 0.001, *, dead: list[int] | None = None
) -> list[Point]:
    """Return a point for each two seconds up to NOW."""
    letters = dead or [0] * len(lag)
    return [
        point_of(
            rates(groups=[group(each, dead=number)], syncs=1, sync_seconds=sync_seconds),
            at=NOW - 2 * (len(lag) - 1 - place),
            answer_ms=1.0,
        )
        for place, (each, number) in enumerate(zip(lag, letters, strict=True))
    ]


def texts(state: State, history: list[Point] | None = None) -> list[str]:
    return [each.text for each in find_problems(state, history or [], NOW)]


def test_a_healthy_broker_has_no_problems() -> None:
    state = State(rates=rates(groups=[group(5000)]))
    assert texts(state, points([5000] * 40)) == []


def test_a_lag_that_rises_and_falls_is_no_problem() -> None:
    state = State(rates=rates(groups=[group(3000)]))
    assert texts(state, points([1500, 2000, 2500, 3000] * 40)) == []


def test_a_lag_that_grows_slowly_for_minutes_is_a_problem() -> None:
    lags = list(range(3_629, 7_379, 25))  # in five minutes
    assert texts(State(rates=rates(groups=[group(7_379)])), points(lags)) == [
        "Group job falls behind: 7,379 messages, and growing."
    ]
    assert texts(State(rates=rates(groups=[group(7_379)])), points(lags[-60:])) == []
    assert texts(State(rates=rates(groups=[group(7_379)])), points(lags[::-1])) == []


def test_a_group_with_lag_and_no_members_is_a_problem() -> None:
    for consumers, found in (
        ("none", ["Group job has no members: 20 messages wait."]),
        ("external", []),
        ("other-node", []),
    ):
        state = State(rates=rates(groups=[group(20, consumers=consumers)]))
        assert texts(state, points([20] * 40)) == found
    idle = State(rates=rates(groups=[group(0, consumers="none")]))
    assert texts(idle, points([0] * 40)) == []
    grown = State(rates=rates(groups=[group(7_379, consumers="none")]))
    assert texts(grown, points(list(range(3_629, 7_379, 25)))) == [
        "Group job has no members: 7,379 messages wait, and their number grows."
    ]


def test_new_dead_letters_of_a_group_are_a_problem() -> None:
    def found(dead: list[int]) -> list[str]:
        state = State(rates=rates(groups=[group(0, dead=dead[-1])]))
        return texts(state, points([0] * len(dead), dead=dead))

    assert found([3000] * 40) == []
    assert found([0, 1]) == ["Group job has 1 new dead letter of the last 5 min, 1 in all."]
    # Redriven meanwhile, those that fail again count again.
    assert found([10, 40, 0, 5]) == [
        "Group job has 35 new dead letters of the last 5 min, 5 in all."
    ]
    assert found([0, 7] + [7] * 200) == []


def test_problems_are_told_in_words_with_a_link() -> None:
    state = State(
        rates=rates(
            problem="no space left on device",
            slow_count=1,
            slow=[{"name": "panel", "address": "10.0.0.1:5"}],
            groups=[group(20_000)],
        ),
        log={"tier": {"problem": "timed out"}},
        limits=[{"name": "topics", "used": 90, "maximum": 100}],
        refusals=[
            {
                "last": datetime.fromtimestamp(NOW - 10, UTC).isoformat(),
                "principal": "panel",
                "address": "10.0.0.1",
                "action": "publish",
                "name": "secret",
                "client": "press-1",
            }
        ],
    )
    found = find_problems(state, points(list(range(5_000, 45_000, 1_000)), 0.5), NOW)
    assert [each.text for each in found] == [
        "Messages cannot be stored: no space left on device.",
        "The object store fails: timed out.",
        "1 client does not keep up: panel.",
        "Group job falls behind: 20,000 messages, and growing.",
        "90 % of the limit of topics is used.",
        "press-1 was refused. The rules of panel do not allow it to publish to secret.",
        "The disk is slow: 500 ms for each sync.",
    ]
    assert {each.link.partition("?")[0] for each in found} == {
        "/storage", "/clients", "/groups", "/refusals",
    }  # fmt: skip


def test_a_broker_that_does_not_answer_is_the_only_problem() -> None:
    assert texts(State(rates=rates(problem="x"), away_since=NOW - 90)) == [
        "The broker has not answered for 2 min."
    ]


def test_a_refusal_is_explained_with_what_to_do() -> None:
    refusal = {"client": "", "principal": "", "address": "10.0.0.1", "action": "log-in"}
    refusal |= {"name": "wrong password", "protocol": "http"}
    assert subject_text(refusal) == "10.0.0.1"
    assert why_text(refusal) == "The log-in failed: wrong password."
    assert "penstock user passwd NAME" in remedy_text(refusal)
    refusal |= {"principal": "panel", "action": "subscribe", "name": "secret/#"}
    assert subject_text(refusal) == "panel"
    assert remedy_text(refusal) == (
        'Add a rule with allow = ["subscribe"] and topics = ["secret/#"] to panel, '
        "or correct the client."
    )


def test_a_limit_that_open_files_lowered_says_so() -> None:
    assert limit_note({"lowered_by": ""}) == ""
    assert "LimitNOFILE" in limit_note({"lowered_by": "open files"})


def test_a_refusal_by_a_deny_rule_names_it_and_says_where_an_allowing_one_goes() -> None:
    refusal = {"client": "", "principal": "panel", "address": "10.0.0.1", "action": "publish"}
    refusal |= {"name": "plant/secret/a", "rule": "deny publish on plant/secret/# (role staff)"}
    assert why_text(refusal) == (
        "A rule denies panel to publish to plant/secret/a: "
        "deny publish on plant/secret/# (role staff)."
    )
    assert remedy_text(refusal) == (
        'The first rule that matches decides: put a rule with allow = ["publish"] and '
        'topics = ["plant/secret/a"] before the denying rule, or change that. '
        "The rules of panel itself come before those of its roles."
    )


WAITING = {"name": "job", "lag": 1200, "consumers": "members", "members": 2}


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([], ""),
        ([{"name": "job", "lag": 0, "topics": []}], "No group lags"),
        (
            [{**WAITING, "consumers": "none", "topics": [{"topic": "orders", "lag": 1200}]}],
            "job lags most: 1,200 messages wait, all of orders; it has no members.",
        ),
        (
            [{**WAITING, "topics": [{"topic": "a", "lag": 700}, {"topic": "b", "lag": 500}]}],
            "job lags most: 1,200 messages wait, most of them of a; it has 2 members.",
        ),
        (
            [{**WAITING, "members": 1, "topics": [{"topic": "a", "lag": 500}]}],
            "job lags most: 1,200 messages wait, 500 of them of a; it has 1 member.",
        ),
        (
            [{**WAITING, "lag": 1, "consumers": "external", "topics": []}],
            "job lags most: 1 message waits; its reader reports its place itself.",
        ),
    ],
)
def test_the_group_that_lags_most_is_named_with_the_cause(
    groups: list[dict[str, Any]], text: str
) -> None:
    assert lag_text(groups).startswith(text)


def test_a_group_with_lag_and_no_members_is_marked() -> None:
    def row(lag: int, consumers: str) -> tuple[str, bool]:
        found = group_row(
            {
                "name": "job", "lag": lag, "members": 0, "unacknowledged": 0, "dead": 0, "lost": 0,
                "offsets": [], "updated": "2026-11-16T10:00:00Z", "consumers": consumers,
            },
            NOW,
        )  # fmt: skip
        return found["members"], found["is_idle"]

    assert row(5, "none") == ("0", True)
    assert row(0, "none") == ("0", False)
    assert row(5, "external") == ("-", False)


def test_a_redrive_asks_with_what_will_happen() -> None:
    found = {"name": "billing", "dead": 2345, "consumers": "members"}
    assert redrive_text(found) == (
        "Redrive billing? All 2,345 dead letters are delivered to its members again, "
        "as if for the first time, and dead again if that fails."
    )
    assert redrive_text({**found, "dead": 1, "consumers": "none"}) == (
        "Redrive billing? Its dead letter is delivered to its members again, "
        "as if for the first time. The group has no member now: nothing is delivered until one joins."
    )


def test_a_redrive_tells_what_is_gone() -> None:
    done = {"messages": 2345, "gone": 0}
    assert redriven_text("billing", done) == "2,345 messages of billing are delivered again."
    assert redriven_text("billing", {**done, "gone": 3}) == (
        "2,345 messages of billing are delivered again. 3 are not: the log no longer has them. "
        "Their dead letters are in the topic dead/billing."
    )


def test_old_figures_are_not_current() -> None:
    assert waiting_text([], NOW) == "Measuring …"
    assert waiting_text(points([1, 2]), NOW + 3) == ""
    assert waiting_text(points([1, 2]), NOW + 300) == (
        "There are no current figures: the last are 5 min old. Measuring …"
    )


def test_time_that_was_not_measured_is_a_gap_in_a_line() -> None:
    assert list(with_gaps([(0.0, 1), (2.0, None), (4.0, 3), (304.0, 5), (306.0, 7)])) == [
        (0.0, 1), (2.0, None), (4.0, 3), (154.0, None), (304.0, 5), (306.0, 7),
    ]  # fmt: skip
    assert list(with_gaps([])) == []


def test_an_old_refusal_is_no_problem() -> None:
    old = datetime.fromtimestamp(NOW - 3600, UTC).isoformat()
    refusal = {"last": old, "principal": "p", "address": "", "action": "a", "name": ""}
    assert texts(State(rates=rates(), refusals=[refusal])) == []


# --- Log-ins --------------------------------------------------------------------------------------


def login(name: str) -> LogIn:
    return LogIn(BrokerApi("http://127.0.0.1:1"), name, anonymous=False, administers=frozenset())


def test_a_log_in_ends_after_its_time_and_the_oldest_gives_way() -> None:
    now = [0.0]
    logins = LogIns(kept_max=2, seconds_max=10, clock=lambda: now[0])
    first, second, third = (logins.add(login(name)) for name in "abc")
    assert logins.find(first) is None
    found = logins.find(second)
    assert found is not None
    assert found.name == "b"
    now[0] = 10.0
    assert logins.find(third) is None
    assert logins.find("") is None
    assert logins.find(None) is None


# --- Requests of other sites ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "host", "origin", "allowed"),
    [
        ((), "127.0.0.1:7070", None, True),
        ((), "localhost:7070", "http://localhost:7070", True),
        ((), "[::1]:7070", None, True),
        ((), "evil.example", None, False),
        ((), "127.evil.example", None, False),
        ((), "127.0.0.1:7070", "http://127.0.0.1:8080", False),
        ((), "127.0.0.1:7070", "null", False),
        (("console.example",), "console.example", "https://console.example", True),
        (("console.example",), "127.0.0.1:7070", None, False),
    ],
)
def test_only_the_consoles_own_pages_are_served(
    hosts: tuple[str, ...], host: str, origin: str | None, allowed: bool
) -> None:
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    scope = {"type": "http", "headers": headers}
    assert (PageSecurity(None, hosts)._problem(scope) is None) is allowed  # type: ignore[arg-type]


# --- Tables ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("warehouse")
    (folder / "gold" / "traffic").mkdir(parents=True)
    rows = pa.table({"topic": ["a", "b"], "messages": [5, 7]})
    deltalake.write_deltalake(str(folder / "gold" / "traffic"), rows)
    (folder / "secret.csv").write_text("a\n1\n")
    return Warehouse(folder)


def test_tables_have_rows_and_a_time(warehouse: Warehouse) -> None:
    (state,) = warehouse.states()
    assert (state.name, state.rows, state.version, state.problem) == ("traffic", 2, 0, "")
    assert abs(state.committed.timestamp() - datetime.now(UTC).timestamp()) < 600
    assert warehouse.letters() == []


def test_the_last_batches_are_the_newest_commits_of_all_tables(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    assert warehouse.commits() == []
    for name, rows in (("bronze", 3), ("silver/temps", 2), ("bronze", 5)):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        data = pa.table({"n": list(range(rows))})
        deltalake.write_deltalake(str(tmp_path / name), data, mode="append")
    (tmp_path / "bronze" / "_delta_log" / "00000000000000000002.json").write_text("{no JSON")
    found = warehouse.commits()
    assert sorted((each.table, each.version, each.rows) for each in found) == [
        ("bronze", 0, 3),
        ("bronze", 1, 5),
        ("temps", 0, 2),
    ]
    times = [each.committed for each in found]
    assert times == sorted(times, reverse=True)
    assert {(each.operation, each.added, each.removed) for each in found} == {("WRITE", 1, 0)}


def test_a_query_reads_tables(warehouse: Warehouse) -> None:
    query = "SELECT topic, messages FROM traffic ORDER BY 1"
    assert Database().named_tables(query) == ["traffic"]
    found = run_query(query, warehouse.named(["traffic", "missing"]), rows_max=1)
    assert (found.columns, found.rows, found.cut) == (("topic", "messages"), [("a", 5)], True)


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE x AS SELECT 1",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "ATTACH '{folder}/x.db'",
        "SET enable_external_access = true",
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM '{folder}/secret.csv'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM data",  # a variable of the program
        "SELECT * FROM missing",
        "SELEC",
        "SELECT 1 -- " + "x" * 20_000,
    ],
)
def test_a_query_reads_nothing_else_and_changes_nothing(warehouse: Warehouse, query: str) -> None:
    before = sorted(map(str, warehouse.folder.rglob("*")))
    with pytest.raises(QueryRefused):
        run_query(query.replace("{folder}", str(warehouse.folder)), warehouse.named(["traffic"]))
    assert sorted(map(str, warehouse.folder.rglob("*"))) == before


def test_a_query_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.console.queries.SQL_SECONDS_MAX", 0.2)
    with pytest.raises(QueryRefused, match="was stopped"):
        run_query("SELECT sum(a.range * b.range) FROM range(1000000) a, range(10000000) b", {})


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('SELECT * FROM "plant/#" JOIN traffic ON true', ["plant/#", "traffic"]),
        ('WITH t AS (SELECT * FROM "a.b/c") SELECT * FROM t', ["a.b/c"]),
        ("SELECT * FROM range(10)", []),
    ],
)
def test_the_tables_and_topics_of_a_query_are_found(query: str, names: list[str]) -> None:
    assert Database().named_tables(query) == names


@pytest.mark.parametrize("query", ["DROP TABLE x", 'SELECT * FROM "a", "A"', "SELEC", ""])
def test_a_text_that_is_no_query_of_tables_is_refused(query: str) -> None:
    with pytest.raises(QueryRefused):
        Database().named_tables(query)


def test_a_topic_is_a_table_of_its_newest_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpBroker(data=tmp_path) as broker:
        for number in range(7):
            broker.publish(topic="plant/temp", json={"celsius": number})
        broker.publish(topic="plant/raw", base64="gqFhAaFi/w==")  # MessagePack

        async def read(topic: str) -> TopicTable:
            api = BrokerApi(broker.url)
            try:
                return await read_topic(api, topic)
            finally:
                await api.close()

        monkeypatch.setattr("penstock.console.topic_tables.SQL_MESSAGES_PAGE", 2)
        temps = asyncio.run(read("plant/temp"))
        query = 'SELECT sum((text->>\'celsius\')::INT), count(*), max("offset") FROM "plant/temp"'
        assert run_query(query, {"plant/temp": temps.data}).rows == [(21, 7, 6)]
        assert temps.whole
        (shown,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        assert Database().named_tables(shown) == ["plant/+/temp"]
        assert run_query(shown, {"plant/+/temp": temps.data}).rows == [("plant/temp", 3.0)]
        assert asyncio.run(read("plant/raw")).data["text"].to_pylist() == [
            payload_text(b"\x82\xa1a\x01\xa1b\xff", "messagepack")
        ]
        monkeypatch.setattr("penstock.console.topic_tables.SQL_MESSAGES_MAX", 3)
        newest = asyncio.run(read("plant/temp"))
        assert (newest.data["offset"].to_pylist(), newest.whole) == ([4, 5, 6], False)
        assert asyncio.run(read("nothing/#")).data.num_rows == 0


def test_a_damaged_table_says_so(tmp_path: Path) -> None:
    (tmp_path / "bronze" / "_delta_log").mkdir(parents=True)
    (state,) = Warehouse(tmp_path).states()
    assert state.problem


# --- Text -----------------------------------------------------------------------------------------


def test_sizes_and_durations_are_short() -> None:
    assert [bytes_text(each) for each in (0, 1023, 4096, 5 << 30)] == [
        "0 B", "1023 B", "4.0 KiB", "5.0 GiB",
    ]  # fmt: skip
    assert [duration_text(each) for each in (-1, 59, 61, 7200, 200_000)] == [
        "0 s", "59 s", "1 min", "2 h", "2 d",
    ]  # fmt: skip
