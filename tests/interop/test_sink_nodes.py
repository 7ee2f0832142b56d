"""Sinks on several nodes of a log on Kafka: an epoch is published once, through any of them."""

import contextlib
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from penstock.core.access import Principal
from penstock.errors import LogUnavailable, NotAllowed, PenstockError, SinkElsewhere
from penstock.flight.client import FlightClient
from penstock.flight.errors import EpochDiffers, EpochOutOfOrder, NotStaged, StagingFull
from penstock.flight.protocol import ReadRange
from penstock.server.flight import shared_epochs
from penstock.storage.kafka import state as kafka_state
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.support.flight import rows, serve_tables
from tests.support.kafka_node import Node
from tests.support.live import LiveBroker
from tests.support.served import free_port, until
from tools.kafka import KafkaBroker

SECONDS_MAX = 60.0


def values(client: FlightClient) -> list[bytes]:
    """The values of all partitions, as far as the node has read them."""
    found: list[bytes] = []
    for partition, bounds in sorted(client.bounds().items()):
        request = ReadRange(bounds.horizon, bounds.end, partition=partition, columns=["value"])
        for batch in client.read(request):
            found += batch.column("value").to_pylist()
    return found


def has(client: FlightClient, expected: list[bytes]) -> None:
    """Wait until a node has read these values, and no others."""

    def count() -> int:
        return sum(each.end - each.horizon for each in client.bounds().values())

    until(lambda: count() >= len(expected), "messages", seconds_max=SECONDS_MAX)
    until(
        lambda: len(values(client)) >= len(expected),
        "all rows",
        seconds_max=SECONDS_MAX,
        look_seconds=0.2,
    )
    assert sorted(values(client)) == sorted(expected)


def stage(client: FlightClient, epoch: int, sent: list[bytes], **more: Any) -> None:
    client.stage([rows(sent)], **{"writer": "w", "epoch": epoch, "partition": 0, **more})


class Sink:
    """A node in this process, and a client of its sinks."""

    def __init__(self, kafka: KafkaBroker, topic: str, number: int, folder: Path) -> None:
        options = KafkaOptions(kafka.address, topic, number)
        self.folder = folder
        self.broker = LiveBroker(open_storage=lambda: KafkaLog(options))
        self.client: FlightClient

    @contextlib.contextmanager
    def running(self, **access: Any) -> Iterator["Sink"]:
        with (
            self.broker,
            FlightClient(serve_tables(self.broker, self.folder, **access)) as self.client,
        ):
            yield self

    @property
    def log(self) -> KafkaLog:
        found = self.broker.server.storage
        assert isinstance(found, KafkaLog)
        return found


@pytest.fixture
def topic() -> str:
    return f"sinks-{secrets.token_hex(4)}"


@pytest.fixture
def sinks(kafka: KafkaBroker, topic: str, tmp_path: Path) -> Iterator[tuple[Sink, Sink]]:
    with (
        Sink(kafka, topic, 0, tmp_path / "0").running() as here,
        Sink(kafka, topic, 1, tmp_path / "1").running() as there,
    ):
        here.broker.until(lambda: set(here.log.partitions) == {0, 1}, seconds_max=30)
        yield here, there


def test_an_epoch_is_published_once_through_whichever_node_it_is_repeated(
    sinks: tuple[Sink, Sink],
) -> None:
    here, there = (each.client for each in sinks)
    stage(here, 7, [b"a", b"b"])
    assert not here.publish_epoch("w", 7, [0]).again
    stage(there, 7, [b"a", b"b"])
    repeated = there.publish_epoch("w", 7, [0])
    assert (repeated.rows, repeated.again) == (2, True)
    with pytest.raises(EpochOutOfOrder):
        there.publish_epoch("w", 6, [0])
    stage(there, 8, [b"c"])
    assert not there.publish_epoch("w", 8, [0]).again
    assert here.publish_epoch("w", 8, [0]).again
    with pytest.raises(EpochOutOfOrder):
        stage(here, 7, [b"a", b"b"])
    with pytest.raises(EpochOutOfOrder):
        here.publish_epoch("w", 7, [0])
    stage(here, 9, [])
    assert here.publish_epoch("w", 9, [0]).rows == 0
    assert there.publish_epoch("w", 9, [0]).again
    for client in (here, there):
        has(client, [b"a", b"b", b"c"])


def test_rows_that_another_node_has_staged_are_asked_for_again(sinks: tuple[Sink, Sink]) -> None:
    here, there = (each.client for each in sinks)
    stage(here, 0, [b"a"])
    with pytest.raises(NotStaged, match="at another node"):
        there.publish_epoch("w", 0, [0])
    assert not here.publish_epoch("w", 0, [0]).again
    has(there, [b"a"])


def test_two_nodes_that_publish_an_epoch_at_the_same_moment_publish_it_once(
    sinks: tuple[Sink, Sink],
) -> None:
    outcomes: list[object] = []

    def publish(client: FlightClient, epoch: int, ready: threading.Barrier) -> None:
        ready.wait(10)
        try:
            outcomes.append(client.publish_epoch("w", epoch, [0]).again)
        except PenstockError as error:
            outcomes.append(error)

    expected: list[bytes] = []
    for epoch in range(10):
        sent = [b"%d/%d" % (epoch, number) for number in range(3)]
        ready = threading.Barrier(2)
        threads = []
        for each in sinks:
            stage(each.client, epoch, sent)
            threads.append(threading.Thread(target=publish, args=(each.client, epoch, ready)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS_MAX)
        assert outcomes.count(False) == epoch + 1
        expected += sent
        for each in sinks:
            assert each.client.publish_epoch("w", epoch, [0]).again
    for each in sinks:
        has(each.client, expected)


def test_a_writer_belongs_to_one_principal_on_all_nodes(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with (
        Sink(kafka, topic, 0, tmp_path / "0").running(anonymous=Principal("ann")) as here,
        Sink(kafka, topic, 1, tmp_path / "1").running(anonymous=Principal("bob")) as there,
    ):
        stage(here.client, 0, [b"a"])
        here.client.publish_epoch("w", 0, [0])
        with pytest.raises(NotAllowed, match="bob may not"):
            stage(there.client, 1, [b"b"])
        with pytest.raises(NotAllowed, match="bob may not"):
            there.client.publish_epoch("w", 1, [0])


def test_writers_are_limited_and_finished_ones_are_forgotten(
    sinks: tuple[Sink, Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (each.client for each in sinks)
    for number in range(2):
        writer = f"batch-{number}"
        stage(here, 0, [b"%d" % number], writer=writer)
        here.publish_epoch(writer, 0, [0], final=True)
    monkeypatch.setattr(shared_epochs, "SINK_WRITERS_PER_PRINCIPAL_MAX", 2)
    stage(there, 0, [b"x"])
    with pytest.raises(StagingFull, match="2 writers of one principal"):
        there.publish_epoch("w", 0, [0])
    monkeypatch.setattr(shared_epochs, "SINK_FINAL_SECONDS_MAX", -1.0)
    assert there.publish_epoch("w", 0, [0]).rows == 1
    log = sinks[0].log
    assert log.sinks.load("batch-0") is None
    assert set(log.sinks.all()) == {"w"}


# --- Processes that end or hang in the middle -----------------------------------------------------

COUNT = 2000


def large(epoch: int) -> list[bytes]:
    """Values that need several transactions."""
    return [b"%d/%d;" % (epoch, number) + bytes(8000) for number in range(COUNT)]


def stage_all(client: FlightClient, epoch: int, sent: list[bytes], *, tasks: int = 2) -> range:
    size = len(sent) // tasks
    for task in range(tasks):
        part = sent[task * size : (task + 1) * size]
        batches = [rows(part[first : first + 500]) for first in range(0, len(part), 500)]
        client.stage(batches, writer="w", epoch=epoch, partition=task)
    return range(tasks)


class Stalled:
    """A producer of Kafka whose commits wait."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.waits = threading.Event()
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, seconds: float) -> None:
        self.waits.set()
        self.released.wait(60)
        self._producer.commit_transaction(seconds)


def stall(sink: Sink) -> Stalled:
    """Let the commits of a node wait."""
    committer = sink.log._committer
    stalled = Stalled(committer._producer)  # type: ignore[arg-type]
    committer._producer = stalled  # type: ignore[assignment]
    return stalled


def publishing(client: FlightClient, tasks: range, errors: list[PenstockError]) -> threading.Thread:
    """Publish epoch 0 in a thread."""

    def publish() -> None:
        try:
            client.publish_epoch("w", 0, tasks)
        except PenstockError as error:
            errors.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    return thread


def test_a_node_that_hangs_in_an_epoch_that_another_one_took_over_adds_nothing(
    sinks: tuple[Sink, Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = sinks
    sent = large(0)
    tasks = stage_all(here.client, 0, sent)
    errors: list[PenstockError] = []
    stalled = stall(here)
    thread = publishing(here.client, tasks, errors)
    assert stalled.waits.wait(SECONDS_MAX)
    stage_all(there.client, 0, sent)
    with pytest.raises(SinkElsewhere, match="node 0"):
        there.client.publish_epoch("w", 0, tasks)
    monkeypatch.setattr(kafka_state, "SERVICE_NODE_SILENT_SECONDS", -1.0)
    published = there.client.publish_epoch("w", 0, tasks)
    assert (published.rows, published.again) == (COUNT, False)
    monkeypatch.undo()
    stalled.released.set()
    thread.join(SECONDS_MAX)
    assert [type(error) for error in errors] == [LogUnavailable]
    here.broker.until(lambda: here.log.problem is None, seconds_max=SECONDS_MAX)
    assert here.client.publish_epoch("w", 0, tasks).again
    stage(here.client, 1, [b"next"])
    assert here.client.publish_epoch("w", 1, [0]).rows == 1
    for each in sinks:
        has(each.client, [*sent, b"next"])


def test_an_epoch_whose_commit_failed_is_finished_without_a_call(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    sent = large(0)
    with Sink(kafka, topic, 0, tmp_path / "0").running() as sink:
        tasks = stage_all(sink.client, 0, sent)
        stalled = stall(sink)
        errors: list[PenstockError] = []
        thread = publishing(sink.client, tasks, errors)
        assert stalled.waits.wait(SECONDS_MAX)
        sink.log._committer._seconds_max = 1.0
        kafka.freeze(frozen=True)
        try:
            stalled.released.set()
            thread.join(SECONDS_MAX)
        finally:
            kafka.freeze(frozen=False)
        assert [type(error) for error in errors] == [LogUnavailable]
        sink.log._committer._seconds_max = 10.0
        has(sink.client, sent)


class Serving:
    """`penstock serve` with a node and sinks, on a new folder at each start; `kill` is kill -9."""

    def __init__(self, kafka: KafkaBroker, topic: str, number: int, folder: Path) -> None:
        self._start = lambda data, port: Node(
            kafka.address,
            data,
            topic=topic,
            number=number,
            PENSTOCK_FLIGHT__ADDRESS=f"127.0.0.1:{port}",
        )
        self._folder = folder
        self._starts = 0
        self._stack = contextlib.ExitStack()
        self.client: FlightClient

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *, same_folder: bool = False) -> None:
        self._starts += not same_folder
        port = free_port()
        self._stack.enter_context(self._start(self._folder / str(self._starts), port))
        self.client = self._stack.enter_context(FlightClient(f"grpc://127.0.0.1:{port}"))

    def kill(self) -> None:
        self._stack.close()

    def restart(self, *, same_folder: bool = False) -> None:
        self.kill()
        self.start(same_folder=same_folder)

    def cut(self, epoch: int, tasks: range, when: Callable[[], object]) -> None:
        """Publish an epoch, and kill the process when a condition is true."""

        def publish() -> None:
            with contextlib.suppress(PenstockError):
                self.client.publish_epoch("w", epoch, tasks)

        thread = threading.Thread(target=publish)
        thread.start()
        when()
        self._stack.pop_all().close()
        thread.join(SECONDS_MAX)


def some(client: FlightClient, partition: int) -> Callable[[], object]:
    """Wait until a node has more messages of a partition than now."""
    before = client.bounds()[partition].end
    return lambda: until(
        lambda: client.bounds()[partition].end > before, "a row", seconds_max=SECONDS_MAX
    )


def test_a_new_process_on_an_empty_folder_knows_what_was_published(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with Serving(kafka, topic, 0, tmp_path) as node:
        stage(node.client, 7, [b"a", b"b"])
        node.client.publish_epoch("w", 7, [0])  # and the answer is lost
        node.restart()
        stage(node.client, 7, [b"a", b"b"])
        assert node.client.publish_epoch("w", 7, [0]).again
        with pytest.raises(EpochOutOfOrder):
            node.client.publish_epoch("w", 6, [0])
        stage(node.client, 8, [b"c"])
        assert not node.client.publish_epoch("w", 8, [0]).again
        has(node.client, [b"a", b"b", b"c"])


def test_an_epoch_is_published_once_when_nodes_are_killed_and_lose_their_folders(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """A killed node starts again on an empty folder; any node finishes, with rows in any order."""
    chance = random.Random(7)
    expected: list[bytes] = []
    partial = 0
    with (
        Serving(kafka, topic, 0, tmp_path / "a") as a,
        Serving(kafka, topic, 1, tmp_path / "b") as b,
    ):
        nodes = (a, b)
        until(lambda: len(a.client.bounds()) == 2, "both nodes", seconds_max=SECONDS_MAX)
        for epoch in range(4):
            killed = nodes[epoch % 2]
            other = nodes[1 - epoch % 2]
            sent = large(epoch)
            tasks = stage_all(killed.client, epoch, sent)
            killed.cut(epoch, tasks, some(other.client, epoch % 2))
            killed.start()
            before = len(values(killed.client)) - len(expected)
            partial += 0 < before < COUNT
            finisher = (killed, other)[epoch // 2]
            if epoch == 1:
                wrong = stage_all(finisher.client, epoch, sent[COUNT // 2 :])
                if 0 < before < COUNT:
                    with pytest.raises(EpochDiffers, match="that are not staged now"):
                        finisher.client.publish_epoch("w", epoch, wrong)
            again = list(sent)
            chance.shuffle(again)
            tasks = stage_all(finisher.client, epoch, again, tasks=4)
            assert finisher.client.publish_epoch("w", epoch, tasks).rows == COUNT
            assert finisher.client.publish_epoch("w", epoch, tasks).again
            expected += sent
            for node in nodes:
                has(node.client, expected)
    assert partial, "no kill was in the middle"


def test_another_node_finishes_an_epoch_of_a_node_that_does_not_start_again(
    kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka may have an open transaction of the killed node, which hides later states."""
    sent = large(0)
    with (
        Serving(kafka, topic, 0, tmp_path / "a") as lost,
        Sink(kafka, topic, 1, tmp_path / "b").running(anonymous=Principal("anonymous")) as sink,
    ):
        sink.broker.until(lambda: set(sink.log.partitions) == {0, 1}, seconds_max=30)
        tasks = stage_all(lost.client, 0, sent)
        lost.cut(0, tasks, some(sink.client, 0))
        stage_all(sink.client, 0, sent[::-1])
        monkeypatch.setattr(kafka_state, "SERVICE_NODE_SILENT_SECONDS", 1.0)
        until(
            lambda: not sink.log._state.is_running(0),
            "a silent node",
            seconds_max=SECONDS_MAX,
            look_seconds=0.1,
        )
        assert sink.client.publish_epoch("w", 0, tasks).rows == COUNT
        assert sink.client.publish_epoch("w", 0, tasks).again
        has(sink.client, sent)


def test_a_node_finishes_an_epoch_with_the_rows_of_its_folder(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    sent = large(0)
    with (
        Serving(kafka, topic, 0, tmp_path / "a") as node,
        Serving(kafka, topic, 1, tmp_path / "b") as other,
    ):
        until(lambda: len(other.client.bounds()) == 2, "both nodes", seconds_max=SECONDS_MAX)
        tasks = stage_all(node.client, 0, sent)
        node.cut(0, tasks, some(other.client, 0))
        node.start(same_folder=True)
        has(node.client, sent)
        has(other.client, sent)
        stage_all(other.client, 0, sent[::-1])
        until(
            lambda: other.client.publish_epoch("w", 0, tasks).again,
            "the epoch",
            seconds_max=SECONDS_MAX,
        )
        has(other.client, sent)
        assert values(node.client) == sent, "in their order"


def test_the_state_that_a_folder_of_an_earlier_version_has_is_that_of_all_nodes(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "0" / "sinks" / "w"
    folder.mkdir(parents=True)
    owner = '{"writer":"w","owner":"anyone","epoch":7,"rows":2,"final":false,"publishing":null}'
    (folder / "writer.json").write_text(owner)
    with (
        Sink(kafka, topic, 0, tmp_path / "0").running() as here,
        Sink(kafka, topic, 1, tmp_path / "1").running() as there,
    ):
        until(lambda: here.log.sinks.load("w"), "the state", seconds_max=SECONDS_MAX)
        stage(there.client, 7, [b"a", b"b"])
        assert there.client.publish_epoch("w", 7, [0]).again
