"""kill -9 of drivers and brokers: every message is in every table and topic once.

For longer: `make crash-pipeline KILLS=10`, which kills drivers until each of their jobs was in the
middle of a batch so often.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa

from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from tests.crash.loads import MARK, LamamqPublisher, Publisher, Rheos2Publisher, segments
from tests.support.served import Served, until

KILLS = int(os.environ.get("PENSTOCK_PIPELINE_KILLS", "0"))
SEED = int(os.environ.get("PENSTOCK_PIPELINE_SEED", "5"))
KILLS_MAX = 100
MESSAGES = 500
"""Of each publisher, before each driver."""
BATCH_ROWS = 400
START_SECONDS_MAX = 300.0 if KILLS else 120.0
MORE_SECONDS = 30.0
DONE_SECONDS_MAX = 120.0 + 30 * KILLS


class BatchPublisher(LamamqPublisher):
    """Publishes Avro records of two parts."""

    PARTS = 2

    def frame(self, number: int, topic: str, value: bytes) -> bytes:  # noqa: ARG002
        parts = b"".join(map(avro_long, range(number * self.PARTS, (number + 1) * self.PARTS)))
        name = self.name.encode()
        record = avro_long(len(name)) + name + avro_long(self.PARTS) + parts + avro_long(0)
        return super().frame(number, topic, record)

    def rows(self) -> list[tuple[str, int, int, int]]:
        """The rows of all messages, with the number twice and the element."""
        numbers = range(self.PARTS * self.next_number)
        return [(self.name, number, number, number % self.PARTS) for number in numbers]


def avro_long(number: int) -> bytes:
    """Return a number that is not negative, as Avro writes it."""
    number <<= 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def marked(publishers: list[Publisher]) -> list[Publisher]:
    """Those whose messages have marks."""
    return [each for each in publishers if not isinstance(each, BatchPublisher)]


def batch_rows(publishers: list[Publisher]) -> list[tuple[str, int, int, int]]:
    return sorted(
        row for each in publishers if isinstance(each, BatchPublisher) for row in each.rows()
    )


class Driver:
    """A driver in processes of its own."""

    def __init__(self, served: Served, folder: Path, *, gold: bool) -> None:
        command = [sys.executable, "-m", "tests.crash.pipeline_driver", served.endpoint]
        self.output = folder / "driver.txt"
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(  # noqa: S603
                [*command, str(folder), str(BATCH_ROWS), "gold" if gold else "plain"],
                start_new_session=True,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def wait(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        seconds_max: float = START_SECONDS_MAX,
        look_seconds: float = 0.005,
    ) -> None:
        """Wait for something that the driver does."""

        def done() -> object:
            assert self.process.poll() is None, f"it ended: {self.output.read_text()[-3000:]}"
            return condition()

        until(done, what, seconds_max=seconds_max, look_seconds=look_seconds)

    def kill(self, *, whole: bool = True) -> None:
        """Kill all its processes, or only the driver's own: the others find out by themselves."""
        with contextlib.suppress(ProcessLookupError):
            if whole:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait(START_SECONDS_MAX)


class Moments:
    """What each job of a driver is doing, by the files that it leaves.

    What a driver left that was killed is not what the next one does: `begin` looks at that.
    """

    def __init__(self, folder: Path, data: Path) -> None:
        self._warehouse = folder / "warehouse"
        self._checkpoints = {
            "bronze": self._warehouse / "_checkpoints" / "bronze",
            "sink": folder / "sink",
        }
        self._sinks = data / "sinks"
        self.all: Mapping[str, Callable[[], bool]] = {
            "bronze": lambda: self._in_batch("bronze"),
            "silver": lambda: bool(self._staged() - self._before_staged),
            "sink": lambda: self._in_batch("sink"),
            "publication": lambda: self._unmarked() and self._epoch() > self._before_epoch,
        }
        self.begin()

    def begin(self) -> None:
        """Look at what there is before a driver starts."""
        self._before = {name: self._newest(name, "commits") for name in self._checkpoints}
        self._before_staged = self._staged()
        self._before_epoch = self._epoch()

    def idle(self) -> bool:
        """Tell whether no batch and no publication is under way."""
        batches = (
            self._newest(name, "offsets") > self._newest(name, "commits")
            for name in self._checkpoints
        )
        return not any(batches) and not self._unmarked()

    def _in_batch(self, name: str) -> bool:
        """Tell whether a stream is in a batch, not its first."""
        done = self._newest(name, "commits")
        return done > self._before[name] and self._newest(name, "offsets") > done

    def _newest(self, name: str, kind: str) -> int:
        files = (self._checkpoints[name] / kind).glob("[0-9]*")
        return max((int(each.name) for each in files), default=-1)

    def _staged(self) -> set[Path]:
        return set((self._warehouse / "silver").glob("[nb]*/_staging/*"))

    def _epoch(self) -> int:
        """Return the epoch of the gold table that the broker has."""
        for state in self._sinks.glob("pipeline-*/writer.json"):
            with contextlib.suppress(ValueError):
                return int(json.loads(state.read_bytes())["epoch"])
        return -1

    def _unmarked(self) -> bool:
        """Tell whether the broker has an epoch that the table does not know."""
        return self._epoch() > self._mark(self._warehouse / "gold" / "traffic", "published")

    def gold_is_through(self, total: int) -> bool:
        """Tell whether the gold table has all messages, and its topic all of the table."""
        traffic = self._warehouse / "gold" / "traffic"
        (found,) = query(traffic, "select sum(messages) from t")
        return found == (total,) and self._mark(traffic, "revision") == self._mark(
            traffic, "published"
        )

    @staticmethod
    def _mark(table: Path, name: str) -> int:
        if not deltalake.DeltaTable.is_deltatable(str(table)):
            return 0
        return deltalake.DeltaTable(str(table)).transaction_version(name) or 0


def log_rows(data: Path) -> Iterator[tuple[str, bytes]]:
    """Topic and value of all messages, by pyarrow alone; the broker is gone."""
    for path in segments(data):
        with (
            pa.OSFile(str(path)) as file,
            pa.ipc.open_stream(file) as stream,
            contextlib.suppress(pa.ArrowInvalid),  # a tail that was cut
        ):
            for batch in stream:
                columns = (batch.column(name).to_pylist() for name in ("topic", "value"))
                yield from zip(*columns, strict=True)


def marks(values: Iterable[bytes]) -> list[tuple[str, int]]:
    """Whose message a value is, and which."""
    found = (MARK.match(value) for value in values)
    return [(match[1].decode(), int(match[2])) for match in found if match]


def rows_in(table: Path) -> int:
    """How many rows a table has, by its log."""
    if not deltalake.DeltaTable.is_deltatable(str(table)):
        return 0
    actions = pa.table(deltalake.DeltaTable(str(table)).get_add_actions(flatten=True))
    return sum(actions.column("num_records").to_pylist())


def query(table: Path, select: str) -> list[tuple[Any, ...]]:
    """Ask DuckDB about a table's files."""
    frame = pa.table(deltalake.DeltaTable(str(table)).to_pyarrow_table())
    with duckdb.connect() as connection:
        connection.register("t", frame)
        return connection.execute(select).fetchall()


def publish(served: Served, publishers: list[Publisher]) -> None:
    """Have messages acknowledged."""
    for each in publishers:
        each.connect(served.address)
        assert each.outcome(MESSAGES) == (MESSAGES, 0)
        each.disconnect()


class Reach:
    """Waits for a moment of a driver; where there is too little to do for it, more is sent."""

    def __init__(
        self, served: Served, driver: Driver, publishers: list[Publisher], moments: Moments
    ) -> None:
        self._served = served
        self._driver = driver
        self._publishers = publishers
        self._moments = moments

    def __call__(self, name: str) -> None:
        more = time.monotonic() + MORE_SECONDS

        def reached() -> bool:
            nonlocal more
            if KILLS and time.monotonic() > more:
                publish(self._served, self._publishers)
                more = time.monotonic() + MORE_SECONDS
            return self._moments.all[name]()

        self._driver.wait(reached, f"{name} in a batch")


def test_nothing_is_lost_or_doubled_when_drivers_and_brokers_are_killed(tmp_path: Path) -> None:
    publishers = [
        LamamqPublisher("good-1", value_size=20),
        Rheos2Publisher("good-2", value_size=20),
        LamamqPublisher("bad", value_size=20),
        BatchPublisher("batches", topic="batch"),
    ]
    chance = random.Random(SEED)
    hits: Counter[str] = Counter()
    kills = 0
    folder = tmp_path / "job"
    folder.mkdir()
    with Served(tmp_path / "broker") as served, contextlib.ExitStack() as ends:
        moments = Moments(folder, served.data)
        goals = dict.fromkeys(moments.all, KILLS) if KILLS else {"silver": 1}
        while any(hits[name] < goal for name, goal in goals.items()):
            assert kills < KILLS_MAX, hits
            publish(served, publishers)
            moments.begin()
            wanted = chance.choice([name for name, goal in goals.items() if hits[name] < goal])
            driver = Driver(served, folder, gold=wanted == "publication")
            ends.callback(driver.kill)
            reach = Reach(served, driver, publishers, moments)
            for _ in range(chance.randrange(3) if KILLS else 1):  # not always the first batch
                reach(wanted)
                if KILLS:
                    time.sleep(chance.random() * 0.5)
            reach(wanted)
            if KILLS and wanted != "publication":  # whose moment is short
                time.sleep(chance.random() * 0.1)
            hits.update(name for name, busy in moments.all.items() if busy())
            if KILLS and chance.random() < 0.2:
                served.kill()  # both
            driver.kill(whole=chance.random() < 0.7)
            kills += 1
            if KILLS:
                print(f"kill {kills} in {wanted}: {dict(hits)}", flush=True)  # noqa: T201
                served.restart()
        brokers = finish(served, folder, publishers, moments)
    print(f"{kills} drivers killed {dict(hits)}, {brokers} brokers under one")  # noqa: T201
    check(served.data, folder, publishers)


def finish(served: Served, folder: Path, publishers: list[Publisher], moments: Moments) -> int:
    """Let a driver do all that is left, while brokers are killed; return how many were."""
    publish(served, publishers)
    moments.begin()
    driver = Driver(served, folder, gold=bool(KILLS))
    try:
        kills = 0
        reach = Reach(served, driver, publishers, moments)
        for name in ("sink", "bronze", "publication") * (1 + KILLS // 3) if KILLS else ("sink",):
            reach(name)
            served.kill()
            kills += 1
            time.sleep(0.3)
            served.start()
        total = sum(each.next_number for each in marked(publishers))
        all_messages = sum(each.next_number for each in publishers)
        parts = len(batch_rows(publishers))

        def done() -> bool:
            names = ("bronze", "silver/numbers", "dead_letters")
            bronze, good, bad = (rows_in(folder / "warehouse" / each) for each in names)
            if bronze < all_messages or good + bad < total:
                return False
            if rows_in(folder / "warehouse" / "silver/batches") < parts:
                return False
            if sum(number + 1 for _, number in latest(folder / "warehouse")) < total:
                return False
            if copied(served) < total or (KILLS and not moments.gold_is_through(all_messages)):
                return False
            return moments.idle()

        driver.wait(done, "all tables", seconds_max=DONE_SECONDS_MAX, look_seconds=0.2)
    finally:
        driver.kill()
    return kills


def latest(tables: Path) -> list[tuple[str, int]]:
    """The last message of each publisher, by the table that is merged."""
    table = tables / "silver" / "latest"
    if not deltalake.DeltaTable.is_deltatable(str(table)):
        return []
    return sorted((row[0], row[1]) for row in query(table, "select publisher, number from t"))


def copied(served: Served) -> int:
    """How many messages the stream has published."""
    with FlightClient(served.endpoint) as client:
        bounds = client.bounds()[0]
        asked = ReadRange(bounds.horizon, bounds.end, topics=["out"], columns=["offset"])
        return sum(map(len, client.read(asked)))


def check(data: Path, folder: Path, publishers: list[Publisher]) -> None:
    """Compare tables and topics with what was sent, message by message."""
    tables = folder / "warehouse"
    expected = sorted(
        (each.name, number) for each in marked(publishers) for number in range(each.next_number)
    )
    found: dict[str, list[bytes]] = {"in": [], "out": [], "gold": [], "batch": []}
    for topic, value in log_rows(data):
        found["in" if topic.startswith("load/") else topic].append(value)
    for name in ("in", "out"):
        assert sorted(marks(found[name])) == expected, name
    bronze = query(tables / "bronze", "select value, message_id from t")
    assert sorted(marks(value for value, _ in bronze)) == expected
    assert len({identifier for _, identifier in bronze}) == len(expected) + len(found["batch"])
    columns = "publisher, number, part.number, element"
    batches = query(tables / "silver/batches", f"select {columns} from t")  # noqa: S608
    assert sorted(batches) == batch_rows(publishers)
    silver = query(tables / "silver/numbers", "select publisher, number from t")
    assert sorted(silver) == [each for each in expected if each[0] != "bad"]
    assert latest(tables) == sorted(
        (each.name, each.next_number - 1) for each in marked(publishers)
    )
    letters = query(tables / "dead_letters", "select value from t")
    assert sorted(marks(value for (value,) in letters)) == [
        each for each in expected if each[0] == "bad"
    ]
    if KILLS:
        check_gold(tables / "gold" / "traffic", found)


def check_gold(table: Path, found: dict[str, list[bytes]]) -> None:
    columns = "topic, protocol, epoch_us(window_start), messages, bytes"
    rows = query(table, f"select {columns} from t")  # noqa: S608
    given = [*found["in"], *found["batch"]]
    sizes = sum(map(len, given))
    assert (sum(row[3] for row in rows), sum(row[4] for row in rows)) == (len(given), sizes)
    results = [json.loads(value) for value in found["gold"]]
    counts = Counter(
        (each["topic"], each["protocol"], each["window_start"], each["messages"])
        for each in results
    )
    assert max(counts.values()) == 1, "a result was published twice"
    last = {
        (each["topic"], each["protocol"], each["window_start"]): (each["messages"], each["bytes"])
        for each in results
    }
    assert sorted(last.values()) == sorted(row[3:] for row in rows), "a result was not published"
    assert len(last) == len(rows)
