"""Rows published over Arrow Flight: to every live subscriber and to disk, each exactly once."""

import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.core.access import Principal
from penstock.errors import InvalidTopicName, LogUnavailable, NotAllowed
from penstock.flight.client import FlightClient
from penstock.flight.errors import (
    BadRequest,
    BadRows,
    EpochOutOfOrder,
    NotStaged,
    StagedRowsDamaged,
)
from penstock.model import Durability
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos2 import RHEOS2
from penstock.server.flight.rows import RowCheck
from penstock.server.flight.sink_files import Publishing, SinkFiles, Task, WriterState
from penstock.storage.options import DurabilityRules, LogOptions
from tests.crash.faults import FaultyFiles, KeepingBroker
from tests.support.flight import rows, serve_tables, table
from tests.support.live import LiveBroker


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path) as broker:
        yield broker


@pytest.fixture
def client(live: LiveBroker, tmp_path: Path) -> Iterator[FlightClient]:
    with FlightClient(serve_tables(live, tmp_path)) as found:
        yield found


def values(client: FlightClient, **request: Any) -> list[bytes]:
    return table(client, columns=["value"], **request).column("value").to_pylist()


def staged(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("sinks/*/*") if path.name != "writer.json")


def test_rows_reach_live_subscribers_of_all_protocols_in_order_and_are_on_disk(
    live: LiveBroker, client: FlightClient
) -> None:
    host, port = live.address
    sent = [b"row %d" % number for number in range(5000)]
    received: dict[Protocol, list[bytes]] = {}

    def subscribe(protocol: Protocol, ready: threading.Barrier) -> None:
        address = f"tcp://{host}:{port}"
        with penstock.connect_sync(address, protocol=protocol) as subscriber:
            messages = subscriber.subscribe("channel/7")
            ready.wait(10)
            received[protocol] = [messages.get(timeout=10).value for _ in sent]

    ready = threading.Barrier(6)
    threads = [threading.Thread(target=subscribe, args=(protocol, ready)) for protocol in PROTOCOLS]
    for thread in threads:
        thread.start()
    ready.wait(10)
    parts = [rows(sent[start : start + 1000], topic="channel/7") for start in range(0, 5000, 1000)]
    client.stage(parts[:2], writer="spark", epoch=0, partition=0)
    client.stage([parts[4]], writer="spark", epoch=0, partition=2)
    client.stage(parts[2:4], writer="spark", epoch=0, partition=1)
    assert client.publish_epoch("spark", 0, [0, 1, 2]).rows == 5000
    assert values(client) == sent
    for thread in threads:
        thread.join(20)
    assert received == dict.fromkeys(PROTOCOLS, sent)
    log = live.server.broker.log
    assert live.call(lambda: log.durable_commit) > 0


def test_an_epoch_is_published_once_however_often_it_is_staged_and_asked_for(
    client: FlightClient, live: LiveBroker, tmp_path: Path
) -> None:
    for attempt in range(3):
        batch = rows([b"%d" % attempt, b"x"])
        assert client.stage([batch], writer="w", epoch=4, partition=1, attempt=attempt) == 2
    assert client.stage([], writer="w", epoch=4, partition=0) == 0
    assert staged(tmp_path) == ["4-0.arrows", "4-1.arrows"]
    first = client.publish_epoch("w", 4, [0, 1])
    assert (first.rows, first.again) == (2, False)
    for _ in range(2):
        again = client.publish_epoch("w", 4, [0, 1])
        assert (again.rows, again.again) == (2, True)
    assert client.stage([rows([b"late"])], writer="w", epoch=4, partition=1) == 1
    assert client.publish_epoch("w", 4, [0, 1]).again
    assert values(client) == [b"2", b"x"]
    assert staged(tmp_path) == []
    client.stage([rows([b"next"])], writer="w", epoch=5, partition=0)
    assert not client.publish_epoch("w", 5, [0]).again
    assert values(client) == [b"2", b"x", b"next"]
    (flight,) = live.server._flights
    assert flight._service is not None
    assert flight._service._sinks._checked == {}, "nothing is kept of published epochs"
    with pytest.raises(EpochOutOfOrder, match="a new checkpoint needs a new writer"):
        client.publish_epoch("w", 4, [0, 1])
    with pytest.raises(EpochOutOfOrder):
        client.stage([rows([b"old"])], writer="w", epoch=3, partition=0)


def test_writers_do_not_know_each_other(client: FlightClient) -> None:
    for writer in ("one", "two"):
        client.stage([rows([writer.encode()])], writer=writer, epoch=0, partition=0)
    with pytest.raises(NotStaged, match="epoch 1 of writer 'one'"):
        client.publish_epoch("one", 1, [0])
    with pytest.raises(NotStaged, match="partition 1"):
        client.publish_epoch("one", 0, [0, 1])
    for writer in ("two", "one"):
        client.publish_epoch(writer, 0, [0])
    assert values(client) == [b"two", b"one"]


def test_what_was_aborted_is_not_published(client: FlightClient, tmp_path: Path) -> None:
    client.stage([rows([b"gone"])], writer="w", epoch=0, partition=0)
    client.stage([rows([b"kept"])], writer="w", epoch=1, partition=0)
    client.abort_epoch("w", 0)
    client.abort_epoch("nobody", 0)
    assert staged(tmp_path) == ["1-0.arrows"]
    with pytest.raises(NotStaged):
        client.publish_epoch("w", 0, [0])
    client.publish_epoch("w", 1, [0])
    client.abort_epoch("w", 1)
    assert values(client) == [b"kept"]


def test_rows_are_on_disk_whatever_their_topics_ask_for(tmp_path: Path) -> None:
    options = LogOptions(durability=DurabilityRules(Durability.MEMORY))
    with (
        LiveBroker(data=tmp_path, log_options=options) as live,
        FlightClient(serve_tables(live, tmp_path)) as client,
    ):
        client.stage([rows([b"x"])], writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
        assert live.call(lambda: live.server.broker.log.durable_commit) == 1


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (rows([b"x"], topics=[""]), InvalidTopicName, "no topic can be named"),
        (rows([b"x"], topics=["a/+"]), InvalidTopicName, "no topic can be named"),
        (rows([b"x"], topics=["a@earliest"]), InvalidTopicName, "take @earliest for a start"),
        (rows([b"x"], topics=["a" * 65_536]), InvalidTopicName, "no topic can be named"),
        (rows([b"x"], topics=[None]), BadRows, "1 of 1 rows have none"),
        (rows([b"x", None]), BadRows, "'value' .*: 1 of 2 rows have none; an empty value is"),
        (rows([b"x"], headers=[[{"key": "k", "value": None}]]), BadRows, "its key or value is"),
        (rows([b"x"], headers=[[{"key": None, "value": b""}]]), BadRows, "its key or value is"),
        (rows([b"x"], headers=[[None]]), BadRows, "a header is null"),
        (rows([bytes((15 << 20) + 1)]), BadRows, "allowed are 15728640"),
        (
            rows([b"x"], headers=[[{"key": "k", "value": b""}] * 65_536]),
            BadRows,
            "allowed are 65535",
        ),
        (
            rows([b"x"], headers=[[{"key": "penstock-hook", "value": b"h"}]]),
            BadRows,
            "penstock- are the broker's",
        ),
        (
            rows([b"x", b"y"], headers=[[], [{"key": "k", "value": bytes(600_000)}] * 2]),
            BadRows,
            "more than 1048576 bytes",
        ),
        (pa.record_batch({"topic": ["t"]}), BadRows, "column 'value'"),
        (pa.record_batch({"topic": ["t"], "value": [b"x"], "size": [1]}), BadRows, "'size'"),
        (pa.record_batch({"topic": ["t"], "value": [[1]]}), BadRows, "expected binary, got list"),
    ],
)
def test_rows_that_cannot_be_published_are_refused_whole(
    client: FlightClient, tmp_path: Path, batch: pa.RecordBatch, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        client.stage([batch], writer="w", epoch=0, partition=0)
    assert staged(tmp_path) == []
    with pytest.raises(NotStaged):
        client.publish_epoch("w", 0, [0])


def test_columns_of_like_types_are_taken(client: FlightClient) -> None:
    batch = pa.record_batch(
        {
            "value": pa.array(["text", ""], pa.large_utf8()),
            "topic": pa.array(["a", "b"]).dictionary_encode(),
            "key": pa.array([None, b"k"], pa.large_binary()),
        }
    )
    client.stage([batch], writer="w", epoch=0, partition=0)
    client.publish_epoch("w", 0, [0])
    found = table(client, columns=["topic", "value", "key", "headers"]).to_pylist()
    assert found == [
        {"topic": "a", "value": b"text", "key": None, "headers": []},
        {"topic": "b", "value": b"", "key": b"k", "headers": []},
    ]


def _cut(data: bytes) -> bytes:
    return data[:-200]


def _cut_between_messages(data: bytes) -> bytes:
    return data[:-16]


def _other_columns(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("topic", pa.utf8())])) as stream:
        stream.write_batch(pa.record_batch({"topic": ["t"]}))
    return bytes(sink.getvalue())


def _other_offsets(data: bytes) -> bytes:
    ends = struct.pack("<3i", 0, 5, 10)  # of two topics
    assert data.count(ends) == 1
    return data.replace(ends, struct.pack("<3i", 0, 1 << 28, 10))


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _cut_between_messages,
        _other_columns,
        _other_offsets,
        lambda _: b"",
        lambda data: b"\xff" * (len(data) - 8) + data[-8:],
        lambda data: data[:4] + b"\xff\xff\xff\x7f" + data[8:],
    ],
)
def test_a_damaged_file_of_staged_rows_is_an_error_by_name(
    client: FlightClient, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    client.stage([rows([b"x", b"why"])], writer="w", epoch=0, partition=0)
    (path,) = tmp_path.rglob("*-0.arrows")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StagedRowsDamaged, match=r"0-0\.arrows cannot be read"):
        client.publish_epoch("w", 0, [0])
    assert client.bounds()[0].end == 0
    client.stage([rows([b"y"])], writer="another", epoch=0, partition=0)
    client.publish_epoch("another", 0, [0])
    assert values(client) == [b"y"]


def test_a_principal_that_may_publish_nothing_stages_no_row(
    live: LiveBroker, tmp_path: Path
) -> None:
    reader = Principal("reader", default=False)
    endpoint = serve_tables(live, tmp_path, anonymous=reader)
    ends = pa.array([0, 1 << 30, 2], pa.int32()).buffers()[1]
    topic = pa.Array.from_buffers(pa.utf8(), 2, [None, ends, pa.py_buffer(b"ab")])
    batch = pa.RecordBatch.from_arrays([topic, pa.array([b"v", b"w"])], names=["topic", "value"])
    with FlightClient(endpoint) as client, pytest.raises(NotAllowed, match="reader may not"):
        client.stage([batch], writer="w", epoch=0, partition=0)
    assert not any(tmp_path.rglob("sinks/*"))


@pytest.mark.parametrize("writer", ["", "..", "a/b", ".hidden", "a" * 129, "ä"])
def test_a_writer_that_is_no_name_of_a_folder_is_refused(
    client: FlightClient, writer: str, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match="letters, digits"):
        client.stage([rows([b"x"])], writer=writer, epoch=0, partition=0)
    with pytest.raises(BadRequest, match="letters, digits"):
        client.publish_epoch(writer, 0, [])
    with pytest.raises(BadRequest, match="letters, digits"):
        client.abort_epoch(writer, 0)
    with pytest.raises(BadRequest, match="expected 0 to"):
        client.publish_epoch("w", -1, [])
    assert not any(tmp_path.rglob("sinks/*"))


def test_large_epochs_are_split_and_keep_their_order(client: FlightClient) -> None:
    sent = [b"%07d" % number + bytes(number % 300) for number in range(150_000)]
    batches = [rows(sent[start : start + 10_000]) for start in range(0, 150_000, 10_000)]
    client.stage(batches, writer="w", epoch=0, partition=0)
    assert client.publish_epoch("w", 0, [0], final=True).rows == 150_000
    assert values(client) == sent


def test_two_epochs_of_one_writer_at_the_same_time_wait_for_each_other(
    client: FlightClient,
) -> None:
    for epoch in range(2):
        client.stage([rows([b"%d" % epoch] * 20_000)], writer="w", epoch=epoch, partition=0)
    outcomes: list[Any] = []

    def publish(epoch: int) -> None:
        try:
            outcomes.append(client.publish_epoch("w", epoch, [0]).rows)
        except EpochOutOfOrder as error:
            outcomes.append(error.epoch)

    threads = [threading.Thread(target=publish, args=(epoch,)) for epoch in (0, 1, 1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = values(client)
    assert found.count(b"1") == 20_000
    assert found.count(b"0") in {0, 20_000}
    assert sorted(outcomes)[-3:] == [20_000] * 3


def test_a_writer_belongs_to_whom_it_came_with(live: LiveBroker, tmp_path: Path) -> None:
    known = {"a": Principal("ann"), "b": Principal("bob")}
    endpoint = serve_tables(live, tmp_path, anonymous=None, verify=lambda token, _: known[token])
    with FlightClient(endpoint, token="a") as ann, FlightClient(endpoint, token="b") as bob:  # noqa: S106
        ann.stage([rows([b"x"])], writer="w", epoch=0, partition=0)
        for call in (
            lambda: bob.stage([rows([b"y"])], writer="w", epoch=0, partition=0),
            lambda: bob.publish_epoch("w", 0, [0]),
            lambda: bob.abort_epoch("w", 0),
        ):
            with pytest.raises(NotAllowed, match="bob may not"):
                call()
        ann.publish_epoch("w", 0, [0])
        assert values(ann) == [b"x"]


def test_an_epoch_that_the_disk_refused_is_finished_when_it_works_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    sent = [b"%06d" % number + bytes(4000) for number in range(8000)]
    with (
        KeepingBroker(tmp_path, files) as live,
        FlightClient(serve_tables(live, tmp_path)) as client,
    ):
        client.stage([rows(sent)], writer="w", epoch=0, partition=0)
        files.fail("create", ".arrows", after=1)
        files.fail("sync", ".arrows", after=2)
        with pytest.raises(LogUnavailable, match="send it again later"):
            client.publish_epoch("w", 0, [0])
        done = client.bounds()[0].end
        assert 0 < done < len(sent)
        with pytest.raises(LogUnavailable):
            client.publish_epoch("w", 0, [0])
        assert client.stage([rows([b"other"])], writer="w", epoch=0, partition=0) == 1
        client.abort_epoch("w", 0)  # it has begun: it is not to be stopped half way
        files.mend()
        live.until(lambda: not live.refuses)
        assert client.publish_epoch("w", 0, [0]).rows == len(sent)
        assert values(client) == sent


def test_an_epoch_that_a_crash_interrupted_is_finished_at_the_start(
    live: LiveBroker, tmp_path: Path
) -> None:
    files = SinkFiles(tmp_path)
    files.save(WriterState("w", "owner"))
    path, _ = files.write("w", [RowCheck(lambda _: None).rows(rows([b"x", b"y"]))])
    files.keep("w", Task(0, 0), path)
    files.save(WriterState("w", "owner", publishing=Publishing(0, [0], start=0)))
    with FlightClient(serve_tables(live, tmp_path)) as client:
        live.until(lambda: not staged(tmp_path))
        assert values(client) == [b"x", b"y"]


def test_history_brings_rows_as_they_were_brought_live(
    live: LiveBroker, client: FlightClient
) -> None:
    client.stage([rows([b"one", b"", b"three"], topic="a/b")], writer="w", epoch=0, partition=0)
    client.publish_epoch("w", 0, [0])
    host, port = live.address
    for protocol in (RHEOS2, FLEXIMQ, LAMAMQ):
        with penstock.connect_sync(f"tcp://{host}:{port}", protocol=protocol) as subscriber:
            messages = subscriber.subscribe("a/+@earliest")
            assert [messages.get(timeout=5).value for _ in range(3)] == [b"one", b"", b"three"]
