"""What every storage promises: one suite for all implementations of `ports.Storage`.

A new storage is one more entry in KINDS. `keeps_history` tells where storages differ by design; a
storage that can fail says how to make it fail.
"""

import asyncio
import contextlib
import dataclasses
import errno
import itertools
import random
import re
import secrets
import threading
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.core.answers import is_safe
from penstock.errors import (
    GroupDiffers,
    LogDamaged,
    LogError,
    LogUnavailable,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.limits import LOG_RETRY_SECONDS
from penstock.model import Durability
from penstock.ports import (
    Fetched,
    GroupProgress,
    PartitionRange,
    PendingRun,
    Receipt,
    Storage,
    TopicFilter,
    new_topic_filter,
)
from penstock.ports.selection import Selection
from penstock.protocols import FLIGHT
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos2 import RHEOS2
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.files import Files
from penstock.storage.group_offsets import InvalidGroup, TooManyGroups
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.namespaces import Namespaces
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.memory import MemoryLog
from penstock.storage.options import DurabilityRules, LogOptions, Retention
from penstock.storage.schema import RECORD_COLUMNS, ROWS_SCHEMA, SCHEMA
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode
from tests.support.publishes import publish
from tests.support.written_log import START_US, flip, message
from tools.kafka import KafkaBroker

SECONDS_MAX = 10.0
EVERYTHING = Selection()
Result = TypeVar("Result")


# --- The storages ---------------------------------------------------------------------------------


def options() -> LogOptions:
    return LogOptions(durability=DurabilityRules(Durability.FSYNC, [("fast/#", Durability.OS)]))


class FailingFiles(Files):
    """Files whose syncs fail while a test says so."""

    def __init__(self) -> None:
        self.fails = threading.Event()

    def sync(self, handle: int) -> None:
        if self.fails.is_set():
            raise OSError(errno.EIO, "Input/output error")
        super().sync(handle)

    def free_bytes(self, folder: Path) -> int:
        return 0 if self.fails.is_set() else super().free_bytes(folder)


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a storage is opened. `opens_failing` opens one together with its switch for failures."""

    name: str
    open: Callable[[Path], Storage]
    keeps_history: bool
    opens_failing: Callable[[Path], tuple[Storage, threading.Event]] | None = None
    opens_small: Callable[[Path, Retention], Storage] | None = None
    """Opens one whose segments hold little, with a retention."""
    damage: Callable[[Path, int], None] | None = None
    """Damages the messages around an offset while the storage is closed."""
    has_files: bool = True
    """Whether its files can be seen."""


def open_failing_arrow(data: Path) -> tuple[Storage, threading.Event]:
    files = FailingFiles()
    return ArrowLog(data, options(), files=files), files.fails


def open_small_arrow(data: Path, retention: Retention) -> Storage:
    return ArrowLog(data, LogOptions(segment_bytes_max=1, retention=retention))


def damage_arrow(data: Path, offset: int) -> None:
    view = LogView(data)
    place = view.catalog.place(offset, view.end)
    place.path.with_suffix(".index").unlink()  # else a closed segment is not read at opening
    flip(place.path, place.entry.position + place.entry.size - 8)


class Kafka:
    """The Kafka of all tests; a test's folder names its topic."""

    broker: KafkaBroker | None = None
    session = secrets.token_hex(4)

    def options(self, data: Path, **more: Any) -> KafkaOptions:
        assert self.broker is not None
        name = f"port-{zlib.crc32(f'{data} {self.session}'.encode()):08x}"
        return KafkaOptions(self.broker.address, name, log=options(), **more)

    def open(self, data: Path) -> Storage:
        return KafkaLog(self.options(data))

    def open_apart(self, data: Path) -> Storage:
        """All messages with a topic are in a namespace, unless one in their block is in none."""
        plain = self.options(data)
        return KafkaLog(dataclasses.replace(plain, namespaces={"#": f"{plain.topic}-apart"}))

    def open_failing(self, data: Path) -> tuple[Storage, threading.Event]:
        assert self.broker is not None
        return KafkaLog(self.options(data, commit_seconds_max=3.0)), Outage(self.broker)


class Outage(threading.Event):
    """Kafka does not answer while it is set."""

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__()
        self._broker = broker

    def set(self) -> None:
        self._broker.freeze(frozen=True)
        super().set()

    def clear(self) -> None:
        self._broker.freeze(frozen=False)
        super().clear()


KAFKA = Kafka()


KINDS = [
    Kind(
        "arrow",
        lambda data: ArrowLog(data, options()),
        keeps_history=True,
        opens_failing=open_failing_arrow,
        opens_small=open_small_arrow,
        damage=damage_arrow,
    ),
    Kind("memory", lambda _data: MemoryLog(), keeps_history=False),
    Kind(
        "kafka",
        KAFKA.open,
        keeps_history=True,
        opens_failing=KAFKA.open_failing,
        has_files=False,
    ),
    Kind("kafka namespaces", KAFKA.open_apart, keeps_history=True, has_files=False),
]


def kinds(*, that: Callable[[Kind], object] = lambda _kind: True) -> list[Any]:
    """The storages for which something holds, as parameters."""
    marks = [pytest.mark.kafka]
    return [
        pytest.param(each, id=each.name, marks=marks if each.name.startswith("kafka") else ())
        for each in KINDS
        if that(each)
    ]


def given(request: pytest.FixtureRequest) -> Kind:
    """The storage of a test; what it runs on is started."""
    found: Kind = request.param
    if found.open == KAFKA.open_apart:
        request.getfixturevalue("monkeypatch").setattr(Namespaces, "run_bytes_min", 0)
    if found.name.startswith("kafka"):
        KAFKA.broker = request.getfixturevalue("kafka")
    return found


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> Kind:
    return given(request)


@pytest.fixture(params=kinds(that=lambda kind: kind.keeps_history))
def keeping(request: pytest.FixtureRequest) -> Kind:
    """A storage that keeps history."""
    return given(request)


# --- A storage in use -----------------------------------------------------------------------------


class Attached:
    """A storage in a running event loop, and what its owner needs to wait for commits."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.topics = TopicTable()
        self.settled = 0
        self._moved = asyncio.Event()
        for name, *_ in storage.known_topics:
            self.topics.intern(name)
        storage.attach(self.topics, self._settle)

    def _settle(self) -> None:
        self.settled += 1
        self._moved.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; commit numbers wake it."""
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                self._moved.clear()
                with contextlib.suppress(TimeoutError):  # not every condition is about commits
                    await asyncio.wait_for(self._moved.wait(), 0.01)

    async def fetch(self, offset: int, topics: TopicFilter | None = None) -> Fetched | LogError:
        """Return what is fetched."""
        answer: asyncio.Future[Fetched | LogError] = asyncio.get_running_loop().create_future()
        self.storage.fetch(offset, answer.set_result, topics)
        return await asyncio.wait_for(answer, SECONDS_MAX)

    async def safe(self, receipt: Receipt) -> None:
        """Wait until a receipt is safe."""
        await self.until(lambda: is_safe(receipt, self.storage))

    def batch(self, *topics: str, timestamp_us: int = START_US) -> Batch:
        """A batch with one message for each topic; its value is the topic's name."""
        batch = Batch()
        frames = b"".join(
            rheos2.encode(rheos2.Event(bytes(16), OpCode.PUBLISH, name.encode(), name.encode()))
            for name in topics
        )
        for name in topics:
            self.topics.intern(name)  # a scan learns only some new names
        assert kernel.scan(frames, 0, batch, self.topics, Sender(bytes(16), 7)) == len(frames)
        batch.timestamp_us = timestamp_us
        return batch

    async def put(self, *topics: str, timestamp_us: int = START_US) -> Receipt:
        """Append one message for each topic, in a commit of their own."""
        receipt = self.storage.append(self.batch(*topics, timestamp_us=timestamp_us), "sender")
        await self.storage.flush()
        await self.safe(receipt)
        return receipt

    def whole(self) -> PartitionRange:
        partition = self.storage.partition
        return PartitionRange(partition, *self.storage.bounds()[partition])

    def rows(
        self, start: int | None = None, end: int | None = None, selection: Selection = EVERYTHING
    ) -> list[dict[str, Any]]:
        """The selected messages of a range, as a scan gives them."""
        span = self.whole()
        span = span._replace(
            start=span.start if start is None else start, end=span.end if end is None else end
        )
        return [row for batch in self.storage.scan(span, selection) for row in batch.to_pylist()]


@asynccontextmanager
async def attached(storage: Storage) -> AsyncIterator[Attached]:
    used = Attached(storage)
    try:
        yield used
    finally:
        await asyncio.wait_for(storage.flush(), SECONDS_MAX)
        storage.close()


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(coroutine)


# --- Appending ------------------------------------------------------------------------------------


def test_offsets_are_dense_whatever_is_appended(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            storage = used.storage
            first = storage.next_offset
            rows = pa.RecordBatch.from_pylist([row("t", b"1"), row("t", b"2")], schema=ROWS_SCHEMA)
            (prepared,) = storage.prepare(
                rows, sender="w", client=9, source=FLIGHT, correlation="c"
            )
            prepared.stamp(START_US)
            given = [
                storage.append(used.batch("a", "b", "c"), "x").first_offset,
                storage.append_record(message("r", b"value")).first_offset,
                storage.add_topic("made", bytes(16)).first_offset,
                storage.append_prepared(prepared).first_offset,
                storage.append(used.batch("d"), "x").first_offset,
            ]
            assert given == [first, first + 3, first + 4, first + 4, first + 6]
            assert storage.next_offset == first + 7

    run(use())


def test_receipts_settle_in_the_order_of_their_commits(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            storage = used.storage
            receipts = []
            order: list[int] = []
            for number in range(50):
                receipts.append(storage.append(used.batch(f"t/{number % 5}"), "x"))
                if number % 7 == 0:
                    await asyncio.sleep(0)
                safe = [is_safe(each, storage) for each in receipts]
                order.append(sum(safe))
                assert safe == sorted(safe, reverse=True), "a later one is safe before an earlier"
            await storage.flush()
            commits = [each.commit for each in receipts]
            assert commits == sorted(commits)
            assert commits[0] >= 1
            assert all(is_safe(each, storage) for each in receipts)
            assert order == sorted(order)
            assert storage.failed_commit < commits[0]

    run(use())


def test_flush_waits_for_all_that_was_appended(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            await used.storage.flush()  # nothing to wait for
            receipt = used.storage.append(used.batch("a"), "x")
            await asyncio.wait_for(used.storage.flush(), SECONDS_MAX)
            assert is_safe(receipt, used.storage)
            assert used.storage.end == used.storage.next_offset

    run(use())


def test_a_receipt_has_the_durability_of_its_topic(keeping: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            storage = used.storage
            fast = await used.put("fast/a")
            assert fast.durability is Durability.OS
            assert storage.written_commit >= fast.commit
            slow = await used.put("slow/a")
            assert slow.durability is Durability.FSYNC
            assert storage.durable_commit >= slow.commit
            both = await used.put("fast/a", "slow/a")
            assert both.durability is Durability.FSYNC
            assert storage.append_record(message("fast/b", b"")).durability is Durability.OS

    run(use())


def test_a_storage_without_history_calls_everything_safe_at_once(tmp_path: Path) -> None:
    async def use(kind: Kind) -> None:
        async with attached(kind.open(tmp_path)) as used:
            receipt = used.storage.append(used.batch("a"), "x")
            assert receipt.durability is Durability.MEMORY
            assert is_safe(receipt, used.storage)

    for kind in KINDS:
        if not kind.keeps_history:
            run(use(kind))


def row(topic: str, value: bytes, key: bytes | None = None) -> dict[str, Any]:
    headers = [{"key": "h", "value": value}]
    return {"topic": topic, "value": value, "key": key, "headers": headers}


def test_prepared_rows_can_be_delivered_and_appended(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            storage = used.storage
            given = [row(f"t/{number % 3}", b"%d" % number, b"key") for number in range(10)]
            rows = pa.RecordBatch.from_pylist(given, schema=ROWS_SCHEMA)
            found = await asyncio.to_thread(
                lambda: list(
                    storage.prepare(rows, sender="w", client=9, source=FLIGHT, correlation="c/1")
                )
            )
            (prepared,) = found
            assert (len(prepared), prepared.client) == (10, 9)
            assert prepared.data_bytes == 10 * len("t/00keyh0")
            assert prepared.held_bytes >= prepared.data_bytes
            prepared.stamp(START_US)
            batch = Batch()
            prepared.load(batch, used.topics)
            assert [batch.value(number) for number in range(10)] == [
                each["value"] for each in given
            ]
            topics = [used.topics.name(batch.topic_id(number)) for number in range(10)]
            assert topics == [each["topic"] for each in given]
            batch.clear()
            receipt = storage.append_prepared(prepared)
            await storage.flush()
            assert is_safe(receipt, storage)
            if not kind.keeps_history:
                return
            assert receipt.durability is Durability.FSYNC
            stored = used.rows()
            assert [{name: each[name] for name in given[0]} for each in stored] == given
            assert {each["sender"] for each in stored} == {"w"}
            assert {each["correlation"] for each in stored} == {"c/1"}

    run(use())


def test_no_rows_are_no_portion(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            rows = pa.RecordBatch.from_pylist([], schema=ROWS_SCHEMA)
            assert not list(
                used.storage.prepare(rows, sender="w", client=1, source=FLIGHT, correlation="")
            )

    run(use())


# --- Failures -------------------------------------------------------------------------------------


@pytest.fixture(params=kinds(that=lambda kind: kind.opens_failing))
def failing(request: pytest.FixtureRequest) -> Callable[[Path], tuple[Storage, threading.Event]]:
    found = given(request).opens_failing
    assert found is not None
    return found


def test_a_failure_is_reported_and_overcome(
    failing: Callable[[Path], tuple[Storage, threading.Event]], tmp_path: Path
) -> None:
    async def use() -> None:
        storage, fails = failing(tmp_path)
        async with attached(storage) as used:
            before = await used.put("a")
            fails.set()
            lost = storage.append(used.batch("a", "a"), "x")
            await asyncio.wait_for(storage.flush(), SECONDS_MAX)
            assert not is_safe(lost, storage)
            assert storage.failed_commit >= lost.commit
            assert is_safe(before, storage)
            assert storage.problem == storage.status().problem
            assert re.search("Input/output error|no answer for 3 seconds", storage.problem or "")
            assert storage.status().failures == 1
            with pytest.raises(LogUnavailable):
                storage.append(used.batch("a"), "x")
            with pytest.raises(LogUnavailable):
                storage.append_record(message("a", b""))
            fails.clear()
            async with asyncio.timeout(SECONDS_MAX + LOG_RETRY_SECONDS):
                await used.until(lambda: storage.problem is None)
            after = await used.put("b")
            assert after.first_offset >= lost.first_offset + 2, "an offset was given twice"
            assert after.commit > storage.failed_commit
            assert not is_safe(lost, storage) or lost.commit <= storage.failed_commit
            assert [each["topic"] for each in used.rows()] == ["a", "b"]

    run(use())


# --- Reading --------------------------------------------------------------------------------------


def test_a_scan_gives_the_messages_of_a_range(keeping: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            topics = [f"t/{number % 4}" for number in range(12)]
            for first in range(0, 12, 3):
                await used.put(*topics[first : first + 3])
            assert used.whole() == (used.storage.partition, 0, 12)
            for start, end in itertools.combinations(range(13), 2):
                found = used.rows(start, end)
                assert [each["offset"] for each in found] == list(range(start, end))
                assert [each["topic"] for each in found] == topics[start:end]
            assert used.rows(5, 5) == []

    run(use())


def test_a_scan_has_the_columns_that_are_asked_for(keeping: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            await used.put("a", "b")
            (batch,) = used.storage.scan(used.whole(), EVERYTHING)
            assert batch.schema.names == SCHEMA.names[:RECORD_COLUMNS]
            (batch,) = used.storage.scan(used.whole(), EVERYTHING, columns=["offset", "value"])
            assert set(batch.schema.names) == {"offset", "value"}
            chosen = Selection(topics=frozenset({"a"}))
            (batch,) = used.storage.scan(used.whole(), chosen, columns=["value"])
            assert {"value", "topic"} == set(batch.schema.names)
            assert batch.column("value").to_pylist() == [b"a"]

    run(use())


@pytest.mark.parametrize(
    ("selection", "offsets"),
    [
        (Selection(topics=frozenset({"a"})), [0, 3]),
        (Selection(topics=frozenset({"missing"})), []),
        (Selection(patterns=("room/#",)), [1, 2, 4, 5]),
        (Selection(expression="room/.|a"), [0, 1, 2, 3, 4, 5]),
        (Selection(since_us=START_US + 1_000_000), [3, 4, 5]),
        (Selection(until_us=START_US + 1_000_000), [0, 1, 2]),
        (Selection(patterns=("room/#",), since_us=START_US + 1), [4, 5]),
        (Selection(protocols=frozenset({"rheos2"})), [0, 1, 2, 3, 4, 5]),
        (Selection(protocols=frozenset({"herald"})), []),
        (Selection(kinds=frozenset({"request"})), []),
    ],
)
def test_a_scan_gives_only_selected_messages(
    keeping: Kind, tmp_path: Path, selection: Selection, offsets: list[int]
) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            await used.put("a", "room/1", "room/2")
            await used.put("a", "room/1", "room/2", timestamp_us=START_US + 1_000_000)
            assert [each["offset"] for each in used.rows(selection=selection)] == offsets

    run(use())


def test_what_is_outside_the_bounds_is_refused_at_once(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            await used.put("a", "b")
            storage = used.storage
            partition, horizon, end = used.whole()
            past = PartitionRange(partition, end, end + 1)
            with pytest.raises(OffsetPastEnd):
                storage.scan(past, EVERYTHING)
            with pytest.raises(OffsetPastEnd):
                storage.split(past, EVERYTHING, count=2)
            if horizon:
                below = PartitionRange(partition, horizon - 1, end)
                with pytest.raises(OffsetBelowHorizon):
                    storage.scan(below, EVERYTHING)
                with pytest.raises(OffsetBelowHorizon):
                    storage.split(below, EVERYTHING, count=2)
            nowhere = PartitionRange(partition + 1, end, end)
            for call in (
                lambda: storage.scan(nowhere, EVERYTHING),
                lambda: storage.split(nowhere, EVERYTHING, count=1),
                lambda: storage.damage(nowhere),
                lambda: storage.offset_at(partition + 1, 0),
            ):
                with pytest.raises(ValueError, match="partition"):
                    call()

    run(use())


def test_a_split_covers_the_range_and_gives_the_same_messages(
    keeping: Kind, tmp_path: Path
) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            for number in range(8):
                await used.put(*[f"t/{number % 2}"] * 4)
            for count in (1, 2, 3, 8, 50):
                for span in (used.whole(), used.whole()._replace(start=3, end=30)):
                    parts = used.storage.split(span, EVERYTHING, count=count)
                    assert 1 <= len(parts) <= count
                    assert (parts[0].start, parts[-1].end) == (span.start, span.end)
                    assert all(one.end == two.start for one, two in itertools.pairwise(parts))
                    rows = [each for part in parts for each in used.rows(part.start, part.end)]
                    assert rows == used.rows(span.start, span.end)
            assert len(used.storage.split(used.whole(), EVERYTHING, count=4)) == 4
            empty = used.whole()._replace(start=8, end=8)
            assert used.storage.split(empty, EVERYTHING, count=4) == []

    run(use())


def test_matching_messages_are_counted_and_their_end_is_found(
    keeping: Kind, tmp_path: Path
) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            storage = used.storage
            await used.put("a", "b", "a", "c")
            await used.put("b", "b")
            await used.put("a", *(f"many/{number}" for number in range(2000)), "a")
            await used.put("quiet", "b", "b", "b")
            await used.put("c", timestamp_us=START_US + 5)
            end = used.whole().end
            selections = [
                EVERYTHING,
                Selection(topics=frozenset({"a"})),
                Selection(topics=frozenset({"a", "b"})),
                Selection(topics=frozenset({"quiet"})),
                Selection(topics=frozenset({"none"})),
                Selection(patterns=("many/#",)),
                Selection(since_us=START_US + 1),
                Selection(topics=frozenset({"b"}), kinds=frozenset({"publish"})),
            ]
            for selection in selections:
                for start in (0, 1, 5, 6, 7, 2008, 2009, end):
                    for stop in {max(start, each) for each in (3, 6, 1500, 2009, 2011, end)}:
                        rows = used.rows(start, stop, selection)
                        wanted = [each["offset"] for each in rows]
                        span = used.whole()._replace(start=start, end=stop)
                        found = storage.match(span, selection)
                        assert found.rows == len(wanted)
                        if not wanted:
                            assert found.end == start
                        else:
                            assert wanted[-1] < found.end <= stop
                            assert start <= found.first <= wanted[0]
                        if selection.columns <= {"topic"}:
                            topics = Counter(each["topic"] for each in rows)
                            assert storage.count_topics(span, selection) == (len(rows), topics)
                        for rows_max in (1, 2, 3, 100):
                            limited = storage.match(span, selection, rows_max=rows_max)
                            assert limited.rows == min(rows_max, len(wanted))
                            below = [each for each in wanted if each < limited.end]
                            assert len(below) == limited.rows
                            assert not wanted or start <= limited.first <= wanted[0]

    run(use())


def test_the_end_of_matching_messages_stays_while_others_arrive(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            await used.put("quiet", "busy")
            quiet = Selection(topics=frozenset({"quiet"}))
            first = used.storage.match(used.whole(), quiet)
            for _ in range(3):
                await used.put("busy", "busy")
                if kind.keeps_history:
                    assert used.storage.match(used.whole(), quiet) == first
            span = used.whole()
            if not kind.keeps_history:
                assert used.storage.match(span, quiet)[:2] == (span.end, 0)
                assert used.storage.count_topics(span, quiet) == (0, {})
            with pytest.raises(OffsetPastEnd):
                used.storage.match(span._replace(end=span.end + 1), quiet)
            with pytest.raises(ValueError, match="no partition"):
                used.storage.match(span._replace(partition=7), quiet)
            with pytest.raises(OffsetPastEnd):
                used.storage.count_topics(span._replace(end=span.end + 1), quiet)

    run(use())


def test_a_time_is_found_by_threads_and_by_the_event_loop(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            storage = used.storage
            for second in range(4):
                await used.put("a", "b", timestamp_us=START_US + second * 1_000_000)
            end = storage.end

            async def find(timestamp_us: int) -> int | LogError:
                answers: list[int | LogError] = []
                storage.find_time(timestamp_us, answers.append)
                await used.until(lambda: answers)
                return answers[0]

            expected = {
                START_US - 5: 0,
                START_US: 0,
                START_US + 1: 2,
                START_US + 2_000_000: 4,
                START_US + 9_000_000: 8,
            }
            for timestamp_us, offset in expected.items():
                wanted = offset if kind.keeps_history else end
                found = await asyncio.to_thread(storage.offset_at, storage.partition, timestamp_us)
                assert found == wanted
                assert await find(timestamp_us) == wanted

    run(use())


def test_fetch_gives_the_messages_around_an_offset(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            await used.put("a", "b")
            await used.put("c", "d", "e")

            assert isinstance(await used.fetch(5), OffsetPastEnd)
            if not kind.keeps_history:
                assert isinstance(await used.fetch(3), OffsetBelowHorizon)
                return
            fetched = await used.fetch(3)
            assert not isinstance(fetched, LogError)
            found = fetched.groups[0]
            assert found.base_offset <= 3 < found.base_offset + found.count <= fetched.end
            batch = Batch()
            found.load(batch, used.topics)
            assert batch.value(3 - found.base_offset) == b"d"
            batch.clear()

    run(use())


def test_fetch_leaves_out_no_message_of_a_wanted_topic(kind: Kind, tmp_path: Path) -> None:
    if not kind.keeps_history:
        return

    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            chance = random.Random(17)
            names: list[str] = []
            for _ in range(60):
                group = chance.choices(("a", "b/1", "b/2", "c"), (20, 1, 1, 20), k=2)
                await used.put(*group)
                names += group
            for patterns in (("b/1",), ("b/+",), ("b/2", "a"), ("none",)):
                topics = new_topic_filter(patterns)
                assert topics is not None
                wanted = {offset for offset, name in enumerate(names) if topics.wants(name)}
                for start in (0, 1, 57, 119):
                    found = await read_all(used, start, topics)
                    assert found == sorted(set(found)), "in order, each once"
                    assert {each for each in wanted if each >= start} <= set(found)

    run(use())


async def read_all(used: Attached, start: int, topics: TopicFilter) -> list[int]:
    """Return the offsets of all messages that are fetched from an offset to the end."""
    found: list[int] = []
    position = start
    while position < used.storage.end:
        fetched = await used.fetch(position, topics)
        assert not isinstance(fetched, LogError)
        assert fetched.end > position
        for group in fetched.groups:
            found += range(group.base_offset, group.base_offset + group.count)
            assert group.base_offset + group.count <= fetched.end
        position = fetched.end
    assert position == used.storage.end
    return found


@pytest.fixture(params=kinds(that=lambda kind: kind.damage))
def fragile(request: pytest.FixtureRequest) -> Kind:
    """A storage that a test can damage."""
    return given(request)


def test_damage_is_reported_and_what_is_before_it_is_read(fragile: Kind, tmp_path: Path) -> None:
    async def fill() -> None:
        async with attached(fragile.open(tmp_path)) as used:
            for topic in "abc":
                await used.put(topic, topic)

    async def use() -> None:
        async with attached(fragile.open(tmp_path)) as used:
            partition, _, end = used.whole()
            assert used.storage.damage(PartitionRange(partition, 0, end))[0][:2] == (2, 4)
            assert used.storage.damage(PartitionRange(partition, 0, 2)) == []
            assert used.storage.damage(PartitionRange(partition, 4, end)) == []
            found: list[int] = []
            batches = used.storage.scan(used.whole(), EVERYTHING, columns=["offset"])
            with pytest.raises(LogDamaged) as caught:
                found.extend(
                    itertools.chain.from_iterable(
                        batch.column("offset").to_pylist() for batch in batches
                    )
                )
            assert found == [0, 1]
            assert (caught.value.offset, caught.value.resumes_at) == (2, 4)
            assert [each["offset"] for each in used.rows(4, end)] == [4, 5]
            none = Selection(topics=frozenset({"none"}))
            assert used.storage.match(used.whole(), none)[:2] == (4, 2), "it may have been selected"

    run(fill())
    assert fragile.damage is not None
    fragile.damage(tmp_path, 2)
    run(use())


def test_stored_topics_are_those_of_messages(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            used.storage.add_topic("no/message", b"")
            await used.put("a", "b", "a")
            expected = {"a", "b"} if kind.keeps_history else set()
            assert used.storage.stored_topics() == expected
            await used.put(*(f"many/{number}" for number in range(2000)))
            found = used.storage.stored_topics()
            assert len(found) == (2002 if kind.keeps_history else 0)

    run(use())


def test_bounds_are_those_of_the_written_partition(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            storage = used.storage
            assert storage.partition in storage.partitions
            assert set(storage.bounds()) == set(storage.partitions)
            await used.put("a", "b")
            horizon = 0 if kind.keeps_history else 2
            assert storage.bounds()[storage.partition] == (horizon, 2)
            assert (storage.horizon, storage.end) == (horizon, 2)
            if not kind.keeps_history:
                assert used.rows() == []

    run(use())


def test_reading_does_not_need_the_event_loop(keeping: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            await used.put("a", "b", "c")
            threads = [asyncio.to_thread(used.rows) for _ in range(4)]
            for rows in await asyncio.gather(*threads):
                assert [each["offset"] for each in rows] == [0, 1, 2]

    run(use())


# --- Close and reopen -----------------------------------------------------------------------------


def test_a_storage_knows_the_time_of_its_last_message(keeping: Kind, tmp_path: Path) -> None:
    async def use(before: int | None) -> None:
        async with attached(keeping.open(tmp_path)) as used:
            assert used.storage.last_us == before
            for later in (1, 2):
                await used.put("a", timestamp_us=(before or START_US) + later)

    run(use(None))
    run(use(START_US + 2))
    run(use(START_US + 4))


def test_messages_topics_and_offsets_outlive_a_restart(keeping: Kind, tmp_path: Path) -> None:
    creator = bytes(range(16))

    async def first() -> list[dict[str, Any]]:
        async with attached(keeping.open(tmp_path)) as used:
            await used.put("a", "b")
            used.storage.add_topic("made", creator)
            await used.storage.flush()
            return used.rows()

    async def second(rows: list[dict[str, Any]]) -> None:
        async with attached(keeping.open(tmp_path)) as used:
            known = {name: creator for name, creator, _ in used.storage.known_topics}
            assert known == {"a": b"", "b": b"", "made": creator}
            assert used.rows() == rows
            receipt = await used.put("c")
            assert receipt.first_offset == 2
            assert [each["topic"] for each in used.rows()] == ["a", "b", "c"]

    run(second(run(first())))


def test_close_writes_what_waits(keeping: Kind, tmp_path: Path) -> None:
    async def first() -> None:
        used = Attached(keeping.open(tmp_path))
        used.storage.append(used.batch("a", "b"), "x")
        await asyncio.to_thread(used.storage.close)

    async def second() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            assert [each["topic"] for each in used.rows()] == ["a", "b"]

    run(first())
    run(second())


def test_a_storage_that_was_never_attached_can_be_closed(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        storage = kind.open(tmp_path)
        await storage.flush()
        storage.close()

    run(use())
    run(use())


def test_a_new_storage_knows_nothing(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            assert list(used.storage.known_topics) == []
            assert used.storage.next_offset == used.storage.end == used.storage.horizon == 0
            assert used.rows() == []
            assert used.storage.problem is None
            assert not used.storage.crowded
            assert used.storage.keeps_history is kind.keeps_history
            assert 0 <= used.storage.log_id < 1 << 48

    run(use())


# --- Status ---------------------------------------------------------------------------------------


def test_the_status_tells_what_was_done(kind: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(kind.open(tmp_path)) as used:
            storage = used.storage
            for _ in range(3):
                await used.put("a", "b")
            status = storage.status()
            assert status.kind == kind.name.split()[0]
            assert (status.log_id, status.partition) == (storage.log_id, storage.partition)
            assert (status.next_offset, status.end, status.horizon) == (6, 6, storage.horizon)
            assert (status.problem, status.failures, status.waiting_bytes) == (None, 0, 0)
            assert status.size == sum(each.size for each in status.segments)
            assert len(status.sync_times.buckets) == len(status.sync_times.bounds_seconds) + 1
            with pytest.raises(dataclasses.FrozenInstanceError):
                status.end = 7  # type: ignore[misc]
            if not kind.keeps_history:
                assert (status.durability, status.durable_end) == (Durability.MEMORY, 0)
                assert (status.segments, status.commits, status.sync_times.count) == ((), 0, 0)
                return
            assert (status.durability, status.durable_end) == (Durability.FSYNC, 6)
            assert status.commits == status.sync_times.count == 3
            assert status.sync_times.seconds > 0
            if not kind.has_files:
                assert status.location.startswith(f"{status.kind}://")
                return
            assert status.location.startswith(str(tmp_path))
            (segment,) = status.segments
            assert (segment.base_offset, segment.end_offset, segment.last_us) == (0, 6, START_US)
            assert segment.size > 0

    run(use())


@pytest.fixture(params=kinds(that=lambda kind: kind.opens_small))
def small(request: pytest.FixtureRequest) -> Callable[[Path, Retention], Storage]:
    found = given(request).opens_small
    assert found is not None
    return found


def test_retention_moves_the_horizon_and_is_counted(
    small: Callable[[Path, Retention], Storage], tmp_path: Path
) -> None:
    async def fill() -> None:
        async with attached(small(tmp_path, Retention())) as used:
            for topic in "abcd":
                await used.put(topic)
            assert len(used.storage.status().segments) == 4
            assert used.storage.status().segments_removed == 0

    async def use() -> None:
        async with attached(small(tmp_path, Retention(bytes_max=1))) as used:
            storage = used.storage
            await used.until(lambda: storage.status().segments_removed == 3)
            assert storage.horizon == storage.status().horizon == 3
            assert [each["topic"] for each in used.rows()] == ["d"]
            with pytest.raises(OffsetBelowHorizon):
                used.rows(0)
            assert storage.stored_topics() == {"d"}

    run(fill())
    run(use())


# --- Consumer groups ------------------------------------------------------------------------------


def test_consumer_groups_keep_what_they_report(kind: Kind, tmp_path: Path) -> None:
    storage = kind.open(tmp_path)
    try:
        groups = storage.groups
        assert groups.all() == {}
        assert groups.load("job") is None
        groups.commit("job", {0: 5, 1: 7}, lost=2)
        groups.commit("job", {0: 9}, lost=1)
        groups.commit("another", {0: 1})
        state = groups.load("job")
        assert state is not None
        assert (state.group, state.offsets, state.lost) == ("job", {0: 9, 1: 7}, 3)
        assert state.updated_us > START_US
        assert list(groups.all()) == ["another", "job"]
        groups.forget("job")
        groups.forget("job")
        assert list(groups.all()) == ["another"]
        for call in (groups.load, groups.forget, lambda name: groups.commit(name, {})):
            with pytest.raises(InvalidGroup):
                call("../job")
    finally:
        storage.close()


def test_a_report_does_not_replace_the_state_of_a_group_of_clients(
    kind: Kind, tmp_path: Path
) -> None:
    storage = kind.open(tmp_path)
    try:
        groups = storage.groups
        groups.commit("job", {0: 5})
        groups.commit("job", {0: 5}, progress=GroupProgress(next=9, pending=(PendingRun(5, 2, 1),)))
        before = groups.load("job")
        with pytest.raises(GroupDiffers):
            groups.commit("job", {0: 9})
        assert groups.load("job") == before
        groups.forget("job")
        groups.commit("job", {0: 9})
    finally:
        storage.close()


def test_the_groups_of_one_owner_are_bounded(kind: Kind, tmp_path: Path) -> None:
    storage = kind.open(tmp_path)
    try:
        groups = storage.groups
        groups.owner_groups_max = 2
        for name in ("a", "b"):
            groups.commit(name, {0: 1}, owner="ann")
        groups.commit("c", {0: 1})
        with pytest.raises(TooManyGroups, match="2 consumer groups of one principal"):
            groups.commit("d", {0: 1}, owner="ann")
        assert groups.load("d") is None
        groups.commit("c", {0: 2}, owner="ann")  # it is not new
        groups.commit("d", {0: 1}, owner="bob")
        groups.commit("a", {0: 2}, owner="bob")
        state = groups.load("a")
        assert state is not None
        assert state.owner == "ann"
        groups.forget("a")
        groups.commit("e", {0: 1}, owner="ann")
    finally:
        storage.close()


def test_the_owners_of_groups_are_known_after_a_restart(keeping: Kind, tmp_path: Path) -> None:
    storage = keeping.open(tmp_path)
    storage.groups.commit("a", {0: 5}, owner="ann")
    storage.close()
    storage = keeping.open(tmp_path)
    try:
        storage.groups.owner_groups_max = 1
        with pytest.raises(TooManyGroups):
            storage.groups.commit("b", {0: 5}, owner="ann")
    finally:
        storage.close()


def test_consumer_groups_outlive_a_restart(keeping: Kind, tmp_path: Path) -> None:
    storage = keeping.open(tmp_path)
    storage.groups.commit("job", {0: 5})
    storage.close()
    storage = keeping.open(tmp_path)
    try:
        state = storage.groups.load("job")
        assert state is not None
        assert state.offsets == {0: 5}
    finally:
        storage.close()


def test_the_protocol_of_a_batch_is_stored(keeping: Kind, tmp_path: Path) -> None:
    async def use() -> None:
        async with attached(keeping.open(tmp_path)) as used:
            await used.put("a")
            (found,) = used.rows()
            assert found["protocol"] == RHEOS2.label
            assert (found["partition"], found["kind"]) == (used.storage.partition, "publish")

    run(use())


# --- The backlog ----------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [(), (("h", bytes(60_000)),)], ids=["empty", "headers"])
def test_messages_without_a_value_crowd_the_log_too(
    tmp_path: Path, headers: tuple[tuple[str, bytes], ...]
) -> None:
    """Once broken: what waits for the disk was counted by values alone."""
    count = 40_000 if not headers else 20

    async def fill() -> None:
        log = ArrowLog(tmp_path, LogOptions(waiting_bytes_max=1_000_000))
        topics = TopicTable()
        log.attach(topics, lambda: None)
        batch = Batch()
        frames = publish(LAMAMQ, "big", headers=headers, value=b"") * count
        lamamq_kernel.scan(frames, 0, batch, topics, Sender(bytes(16), 1), order="big")
        assert len(batch) == count
        log.append(batch, "s")
        assert log.crowded
        await log.flush()
        assert not log.crowded
        assert log.status().waiting_bytes == 0
        log.close()

    asyncio.run(fill())
