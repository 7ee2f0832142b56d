"""Drivers of the pipeline that are killed, the moments to kill them, and the tables they leave."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import pyarrow as pa

from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from penstock.storage.object_store import ObjectStore
from tests.crash.loads import MARK, Publisher, segments
from tests.support.served import Served, until

KILLS: Final = int(os.environ.get("PENSTOCK_PIPELINE_KILLS", "0"))
"""Kills of the whole campaign; 0 for the short run of the test suite."""
SEED: Final = int(os.environ.get("PENSTOCK_PIPELINE_SEED", "5"))
MESSAGES: Final = 500
"""Of each publisher, before each driver."""
BATCH_ROWS: Final = 400
START_SECONDS_MAX: Final = 1800.0 if KILLS else 300.0
"""Until a driver does what it is to be killed in; a campaign may run on a loaded machine."""
MORE_SECONDS: Final = 30.0
SLOW_WORKER: Final = "Python worker failed to connect back"
"""Spark ends a query whose Python process does not start in ten seconds, and has no setting for it."""

killed: Final[Counter[str]] = Counter()
"""The processes that were killed, of all tests: drivers by their moment, and brokers."""


class Driver:
    """A driver in processes of its own."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        self.output = folder / "driver.txt"
        self._command = [sys.executable, "-m", module, *arguments]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self.output.open("ab") as out:
            self._output_start = out.tell()
            return subprocess.Popen(  # noqa: S603
                self._command,
                start_new_session=True,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _check(self) -> None:
        """Fail if it has ended. If Spark was too slow for itself, start it again."""
        if self.process.poll() is None:
            return
        text = self.output.read_bytes()[self._output_start :].decode(errors="replace")
        assert SLOW_WORKER in text, f"it ended: {text[-3000:]}"
        self.kill()
        self.process = self._start()

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
            self._check()
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


def pipeline_driver(served: Served, folder: Path, mode: str) -> Driver:
    """Start a driver of the pipeline: "plain", "gold" or "rebuild"."""
    arguments = (served.endpoint, str(folder), str(BATCH_ROWS), mode)
    return Driver(folder, "tests.crash.pipeline_driver", *arguments)


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
        self._data = data
        self._sinks = data / "sinks"
        self.all: Mapping[str, Callable[[], bool]] = {
            "bronze": lambda: self._in_batch("bronze"),
            "silver": lambda: bool(self._staged() - self._before_staged),
            "merge": lambda: bool(self._merging() - self._before_merging),
            "rebuild": lambda: bool(self._rebuilding() - self._before_rebuilding),
            "sink": lambda: self._in_batch("sink"),
            "publication": lambda: self._unmarked() and self._epoch() > self._before_epoch,
        }
        self.of_broker: Mapping[str, Callable[[], bool]] = {**self.all, "upload": self._uploading}
        self.begin()

    def begin(self) -> None:
        """Look at what there is before a driver starts."""
        self._before = {name: self._newest(name, "commits") for name in self._checkpoints}
        self._before_staged = self._staged()
        self._before_merging = self._merging()
        self._before_rebuilding = self._rebuilding()
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

    def _merging(self) -> set[Path]:
        """Return the files of the merged table that are newer than its last commit."""
        table = self._warehouse / "silver" / "latest"
        commits = [_modified(each) for each in table.glob("_delta_log/*.json")]
        last = max(commits, default=0)
        return {each for each in table.glob("*.parquet") if _modified(each) > last}

    def _rebuilding(self) -> set[Path]:
        """Return the files of tables that are being computed again."""
        return set((self._warehouse / "_rebuild").glob("silver/*/**/*.parquet"))

    def _uploading(self) -> bool:
        """Tell whether the broker has closed a segment that its object store may lack."""
        marked = {each.name[:20] for each in (self._data / "log" / "0").glob("*.tiered.json")}
        return not marked >= {each.stem for each in segments(self._data)[:-1]}

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


def _modified(path: Path) -> int:
    """Return the time of a file, 0 if it was deleted."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def fetch_segments(data: Path, store: ObjectStore) -> int:
    """Copy the segments that a log has only in its object store; return their number."""
    local = {each.name for each in segments(data)}
    fetched = 0
    for each in store.objects():
        name = each.name.rpartition("/")[2]
        if name.endswith(".arrows") and name not in local:
            (data / "log" / "0" / name).write_bytes(store.read(each.name))
            fetched += 1
    return fetched


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
            return self._moments.of_broker[name]()

        self._driver.wait(reached, f"{name} in a batch")
