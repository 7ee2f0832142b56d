"""Tables over Arrow Flight: a range is what the files hold, and errors keep their codes."""

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as pf
import pytest

import penstock
from penstock.errors import LogDamaged, LogReplaced, OffsetBelowHorizon, OffsetPastEnd
from penstock.flight.client import FlightClient
from penstock.flight.errors import BadRequest, FlightFailed
from penstock.flight.protocol import Match, Matched, OffsetRange, ReadRange, Splits
from penstock.limits import FLIGHT_READS_MAX
from penstock.protocols import PROTOCOLS
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.group_offsets import InvalidGroup
from penstock.storage.options import LogOptions, Retention
from tests.support.flight import rows, serve_tables, table
from tests.support.live import LiveBroker

MANY = 2000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flight")


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[FlightClient]:
    """A client of a broker that has messages of all protocols, in many groups."""
    with LiveBroker(data=data) as live:
        endpoint = serve_tables(live, data)
        host, port = live.address
        for protocol in PROTOCOLS:
            with penstock.connect_sync(f"tcp://{host}:{port}", protocol=protocol) as publisher:
                for part in range(4):
                    values = [
                        b"%d-%d-%d" % (protocol.number, part, each) for each in range(MANY // 4)
                    ]
                    publisher.publish_many(f"channel/{protocol.number}", values)
        with FlightClient(endpoint) as found:
            found.stage([rows([b"row"] * 10)], writer="w", epoch=0, partition=0)
            found.publish_epoch("w", 0, [0])
            live.until(lambda: live.server.broker.log.next_offset == found.bounds()[0].end)
            yield found


def kept(data: Path) -> pa.Table:
    view = LogView(data)
    return pa.Table.from_batches(plain_records(record_batches(view)), schema=RECORD_SCHEMA)


def test_all_that_can_be_read_is_what_the_files_hold(client: FlightClient, data: Path) -> None:
    found = table(client)
    assert found.schema.equals(RECORD_SCHEMA)
    assert found.num_rows == 5 * MANY + 10
    assert found.combine_chunks().equals(kept(data).combine_chunks())


def test_a_range_is_cut_to_the_row(client: FlightClient, data: Path) -> None:
    whole = kept(data)
    for start, end in ((0, 1), (1, 1), (777, 778), (499, 2501), (10_009, 10_010)):
        found = table(client, start=start, end=end)
        assert found.combine_chunks().equals(whole.slice(start, end - start).combine_chunks())


def test_parts_of_a_range_meet_and_are_the_range(client: FlightClient, data: Path) -> None:
    end = client.bounds()[0].end
    for count in (1, 3, 1000):
        parts = client.splits(Splits(5, end, count))
        assert len(parts) <= count
        assert parts[0].start == 5
        assert parts[-1].end == end
        assert all(one.end == other.start for one, other in itertools.pairwise(parts))
        read = [table(client, start=part.start, end=part.end) for part in parts]
        assert pa.concat_tables(read).combine_chunks().equals(kept(data).slice(5).combine_chunks())
    assert client.splits(Splits(5, 5, 4)) == []
    only = client.splits(Splits(0, end, 2, topics=["table"]))
    assert only[-1] == OffsetRange(only[-1].start, end)


def test_messages_of_topics_are_counted(client: FlightClient, data: Path) -> None:
    topics = kept(data).column("topic").to_pylist()
    end = len(topics)
    for start, request, passes in (
        (0, {"topics": ["table"]}, lambda topic: topic == "table"),
        (777, {"patterns": ["channel/+"]}, lambda topic: topic != "table"),
        (5, {"expression": "channel/[12]"}, lambda topic: topic in {"channel/1", "channel/2"}),
        (5, {}, lambda _: True),
        (0, {"topics": ["nothing"]}, lambda _: False),
    ):
        wanted = [offset for offset in range(start, end) if passes(topics[offset])]
        found = client.match(Match(start, end, **request))
        assert found.rows == len(wanted)
        assert found.end > wanted[-1] if wanted else found.end == start
        if wanted:
            assert start <= found.first <= wanted[0]
            limited = client.match(Match(start, end, rows_max=3, **request))
            assert limited == Matched(wanted[2] + 1, 3, limited.first)
            assert start <= limited.first <= wanted[0]
    with pytest.raises(OffsetPastEnd):
        client.match(Match(0, end + 1))
    with pytest.raises(BadRequest, match="rows_max"):
        client.match(Match(0, end, rows_max=0))
    with pytest.raises(LogReplaced):
        client.match(Match(0, end, log="another"))


def test_only_what_is_asked_for_is_given(client: FlightClient, data: Path) -> None:
    whole = kept(data)
    middle = whole.column("timestamp")[5000]
    asked: list[tuple[dict[str, Any], Any]] = [
        ({"topics": ["channel/2", "nothing"]}, lambda row: row["topic"] == "channel/2"),
        ({"topics": []}, lambda _: False),
        ({"patterns": ["channel/+"]}, lambda row: row["topic"] != "table"),
        (
            {"topics": ["table"], "patterns": ["channel/5"]},
            lambda row: row["topic"] in {"table", "channel/5"},
        ),
        ({"expression": "channel/[12]"}, lambda row: row["topic"] in {"channel/1", "channel/2"}),
        ({"protocols": ["flight", "rheos1"]}, lambda row: row["protocol"] in {"flight", "rheos1"}),
        ({"kinds": ["request"]}, lambda _: False),
        ({"since_us": middle.value}, lambda row: row["timestamp"] >= middle.as_py()),
        ({"until_us": middle.value}, lambda row: row["timestamp"] < middle.as_py()),
    ]
    light = whole.select(["topic", "protocol", "timestamp", "offset"]).to_pylist()
    for request, passes in asked:
        expected = [row["offset"] for row in light if passes(row)]
        found = table(client, columns=["offset"], **request)
        assert found.column("offset").to_pylist() == expected, request
    found = table(client, columns=["value", "offset"], topics=["table"])
    assert found.schema.names == ["value", "offset"]


def test_names_times_and_groups_are_told(client: FlightClient, data: Path) -> None:
    whole = kept(data)
    assert client.topics() == sorted({*(f"channel/{each}" for each in range(1, 6)), "table"})
    times = whole.column("timestamp").cast(pa.int64()).to_pylist()
    for time_us in (0, times[0], times[3333], times[3333] + 1, times[-1], times[-1] + 1):
        expected = next((row for row, each in enumerate(times) if each >= time_us), len(times))
        assert client.offset_at(time_us) == expected
    client.commit_group("readers", {0: 10})
    client.commit_group("readers", {0: 25})
    (found,) = client.groups()["readers"].values()
    assert (found.offset, found.lag) == (25, len(times) - 25)
    with pytest.raises(InvalidGroup, match="no name for a group"):
        client.commit_group("../readers", {0: 1})


@pytest.mark.parametrize(
    ("request_", "error", "code"),
    [
        (ReadRange(0, 1 << 40), OffsetPastEnd, "offset-past-end"),
        (ReadRange(0, 1, log="0123456789ab"), LogReplaced, "log-replaced"),
        (ReadRange(0, 1, partition=1), BadRequest, "bad-request"),
        (ReadRange(2, 1), BadRequest, "bad-request"),
        (ReadRange(0, 1, columns=["valeu"]), BadRequest, "bad-request"),
        (ReadRange(0, 1, columns=[]), BadRequest, "bad-request"),
        (ReadRange(0, 1, expression="("), BadRequest, "bad-request"),
        (ReadRange(0, 1, kinds=["publsh"]), BadRequest, "bad-request"),
    ],
)
def test_a_range_that_cannot_be_read_is_a_named_error(
    client: FlightClient, request_: ReadRange, error: type[Exception], code: str
) -> None:
    with pytest.raises(error) as raised:
        list(client.read(request_))
    assert getattr(raised.value, "code") == code  # noqa: B009
    plain_client = pf.FlightClient(client.endpoint)
    with pytest.raises(pf.FlightError, match=f"^{code}: ") as told:
        plain_client.do_get(pf.Ticket(msgspec.json.encode(request_))).read_all()
    assert msgspec.json.decode(told.value.extra_info)["code"] == code
    plain_client.close()


@pytest.mark.parametrize(
    ("kind", "body"),
    [("fly", b""), ("splits", b""), ("splits", b"{}"), ("offset-at", b"\xff"), ("groups\0", b"")],
)
def test_an_action_that_nobody_understands_is_a_named_error(
    client: FlightClient, kind: str, body: bytes
) -> None:
    with pf.FlightClient(client.endpoint) as plain_client:
        with pytest.raises(pf.FlightError, match=r"^bad-request: "):
            list(plain_client.do_action(pf.Action(kind, body)))
        assert len(plain_client.list_actions()) == 9


def test_what_retention_took_is_told_as_that(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes_max=1 << 20, retention=Retention(bytes_max=3 << 20))
    with (
        LiveBroker(data=tmp_path, log_options=options) as live,
        FlightClient(serve_tables(live, tmp_path)) as client,
    ):
        for epoch in range(12):
            client.stage([rows([bytes(1 << 19)])], writer="w", epoch=epoch, partition=0)
            client.publish_epoch("w", epoch, [0])
        log = live.server.broker.reader
        applied = threading.Event()
        live.call(lambda: log._committer.later(log._retain))
        live.call(lambda: log._committer.later(applied.set))
        assert applied.wait(10)
        horizon = client.bounds()[0].horizon
        assert 0 < horizon < 12
        with pytest.raises(OffsetBelowHorizon) as raised:
            list(client.read(ReadRange(0, 12)))
        assert (raised.value.offset, raised.value.horizon) == (0, horizon)
        with pytest.raises(OffsetBelowHorizon):
            client.splits(Splits(start=0, end=12, count=2))
        assert table(client).num_rows == 12 - horizon


def test_what_is_damaged_is_told_behind_what_could_be_read(tmp_path: Path) -> None:
    with (
        LiveBroker(data=tmp_path) as live,
        FlightClient(serve_tables(live, tmp_path)) as client,
    ):
        for epoch in range(3):
            client.stage([rows([b"epoch %d" % epoch] * 4)], writer="w", epoch=epoch, partition=0)
            client.publish_epoch("w", epoch, [0])
        (segment,) = tmp_path.rglob("*.arrows")
        content = bytearray(segment.read_bytes())
        content[content.index(b"epoch 1")] ^= 1
        with segment.open("r+b") as file:  # the broker has it open
            file.write(content)
        batches = client.read(ReadRange(1, 12, columns=["offset"]))
        assert next(batches).column("offset").to_pylist() == [1, 2, 3]
        with pytest.raises(LogDamaged) as raised:
            next(batches)
        assert (raised.value.offset, raised.value.resumes_at) == (4, 8)
        rest = table(client, start=raised.value.resumes_at, columns=["offset"])
        assert rest.column("offset").to_pylist() == [8, 9, 10, 11]


def test_ranges_that_nobody_reads_to_the_end_make_room_for_others(client: FlightClient) -> None:
    end = client.bounds()[0].end
    for _ in range(FLIGHT_READS_MAX + 2):
        assert len(next(client.read(ReadRange(0, end))))


def test_no_answer_says_where_none_came_from() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with FlightClient(endpoint) as client, pytest.raises(FlightFailed, match=endpoint):
            client.bounds()
    for wrong in ("7090", "http://127.0.0.1:7090", "127.0.0.1:70900", "grpc://:7090"):
        with pytest.raises(FlightFailed, match="expected HOST:PORT"):
            FlightClient(wrong)
