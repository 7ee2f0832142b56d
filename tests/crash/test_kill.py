"""kill -9 under load: what was acknowledged is there after the restart, in order, none twice.

For longer: `make crash SECONDS=600`.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from penstock.storage.arrow.format.segment import HEAD_BYTES_MAX
from penstock.storage.arrow.write.row_indexing import RowIndexing
from tests.crash.faults import FaultyFiles, KeepingBroker
from tests.crash.loads import (
    SECONDS_MAX,
    LamamqPublisher,
    Load,
    Publisher,
    Rheos1Publisher,
    Rheos2Publisher,
    check_kept,
    marks,
    one_of_each,
    replayed,
    rows_of,
    segments,
    until,
)

SECONDS = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "0"))
LISTENING = re.compile(r"listen  tcp://127\.0\.0\.1:(\d+)")
MIB = 1 << 20


class BrokerProcess:
    """`penstock serve` on a folder, in a process of its own."""

    def __init__(self, folder: Path, *, log: str = "", broker: str = "") -> None:
        self.data = folder / "data"
        config = folder / "penstock.toml"
        config.write_text(
            f'[data]\nfolder = "{self.data}"\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n'
            f"[broker]\n{broker}\n[log]\n{log}\n"
        )
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self.popen = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "penstock.cli", "serve", "--config", str(config)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith("PENSTOCK_")
                },
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def output(self) -> str:
        return self._output.read_text()

    def ready(self) -> tuple[str, int]:
        """Wait until it takes clients; return where."""
        until(lambda: "Ready." in self.output or self.popen.poll() is not None, "a broker")
        match = LISTENING.search(self.output)
        assert match is not None, self.output
        assert self.popen.poll() is None, self.output
        return "127.0.0.1", int(match[1])

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(SECONDS_MAX)

    def stop(self) -> float:
        """End it as an operator does; return the seconds it took."""
        started = time.monotonic()
        self.popen.send_signal(signal.SIGTERM)
        assert self.popen.wait(SECONDS_MAX) == 0, self.output
        assert "Traceback" not in self.output, self.output[:3000]
        return time.monotonic() - started


class Killer:
    """Chooses when a broker dies."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._moments: dict[str, Callable[[BrokerProcess, Load], None]] = {
            "while it starts": self._starting,
            "as soon as it is ready": self._ready,
            "under load": self._loaded,
            "while a segment is closed and the next begun": self._rolling,
            "while it stops": self._stopping,
        }

    def run(self, broker: BrokerProcess, load: Load, moment: str | None = None) -> None:
        """Let a broker live for a while, under load, and kill it."""
        moment = moment or self.chance.choice(
            [*self._moments, "under load", "while a segment is closed and the next begun"]
        )
        self._moments[moment](broker, load)
        self.kills[moment] += 1
        broker.kill()
        load.wait()
        assert "Traceback" not in broker.output, broker.output[:3000]

    def _starting(self, broker: BrokerProcess, load: Load) -> None:  # noqa: ARG002
        self._wait(0.5)

    def _ready(self, broker: BrokerProcess, load: Load) -> None:
        load.start(broker.ready())
        self._wait(0.03)

    def _loaded(self, broker: BrokerProcess, load: Load) -> None:
        load.start(broker.ready())
        self._wait(0.7)

    def _rolling(self, broker: BrokerProcess, load: Load) -> None:
        load.start(broker.ready())
        folder = broker.data / "log" / "0"
        before = set(os.listdir(folder))  # noqa: PTH208
        deadline = time.monotonic() + 1
        wanted = self.chance.choice((".arrows", ".index.new", ".index"))
        while time.monotonic() < deadline:
            new = set(os.listdir(folder)) - before  # noqa: PTH208
            if sum(name.endswith(".arrows") for name in new) > 1 or (
                wanted != ".arrows" and any(name.endswith(wanted) for name in new)
            ):
                break
        self._wait(0.002)

    def _stopping(self, broker: BrokerProcess, load: Load) -> None:
        load.start(broker.ready())
        self._wait(0.4)
        broker.popen.send_signal(signal.SIGTERM)
        self._wait(0.1)

    def _wait(self, seconds_max: float) -> None:
        time.sleep(self.chance.random() * seconds_max)


def finish(folder: Path, load: Load, *, log: str, from_start: bool = True, broker: str = "") -> int:
    """Start once more, read all of history as a client, stop, and look at the files."""
    with BrokerProcess(folder, log=log, broker=broker) as last:
        address = last.ready()
        load.start(address)  # and it works
        before = load.answers
        until(lambda: load.answers > before + 300, "answers")
        load.stop()
        assert "cannot be read" not in last.output, last.output
        last.stop()
    with BrokerProcess(folder, log=log, broker=broker) as reader:
        address = reader.ready()
        rows = rows_of(last.data)
        count = check_kept(rows, load.publishers, from_start=from_start)
        assert replayed(address, count) == marks(rows)
        reader.stop()
    return count


def crowd() -> list[Publisher]:
    """Several publishers of every acknowledged protocol, and one of each other."""
    return [
        *one_of_each(),
        Rheos1Publisher("rheos1-b"),
        Rheos2Publisher("rheos2-b"),
        LamamqPublisher("lamamq-b"),
    ]


SMALL_SEGMENTS = f"segment_bytes_max = {MIB}"


@pytest.mark.parametrize(
    "moments",
    [
        ["under load", "while a segment is closed and the next begun", "while it stops"],
        ["as soon as it is ready", "while it starts", "under load"],
    ],
    ids=["loaded", "young"],
)
def test_a_killed_broker_has_all_that_it_acknowledged(moments: list[str], tmp_path: Path) -> None:
    load = Load(one_of_each())
    killer = Killer(len(moments[0]))
    for moment in moments:
        with BrokerProcess(tmp_path, log=SMALL_SEGMENTS) as broker:
            killer.run(broker, load, moment)
    assert finish(tmp_path, load, log=SMALL_SEGMENTS) >= load.answers > 300


@pytest.mark.skipif(not SECONDS, reason="make crash SECONDS=600")
@pytest.mark.parametrize(
    ("name", "log", "broker", "share"),
    [
        ("rolls", SMALL_SEGMENTS, "", 0.5),
        ("one segment", "", "", 0.15),
        ("retention", f"{SMALL_SEGMENTS}\nbytes_max = {6 * MIB}", "", 0.2),
        ("os", SMALL_SEGMENTS, 'durability = "os"', 0.15),
    ],
    ids=["rolls", "one-segment", "retention", "os"],
)
def test_many_kills(name: str, log: str, broker: str, share: float, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    load = Load(crowd(), seed=seed)
    killer = Killer(seed)
    deadline = time.monotonic() + share * SECONDS
    while time.monotonic() < deadline:
        with BrokerProcess(tmp_path, log=log, broker=broker) as victim:
            killer.run(victim, load)
    kept = finish(tmp_path, load, log=log, broker=broker, from_start=name != "retention")
    print(  # noqa: T201 - how much was tried
        f"\n{name}: seed {seed}, {killer.kills.total()} kills {dict(killer.kills)}, "
        f"{sum(each.next_number for each in load.publishers)} messages sent, "
        f"{load.answers} acknowledged, {kept} kept in {len(segments(tmp_path / 'data'))} segments"
    )
    assert kept >= load.answers or name == "retention"


# --- Stops ----------------------------------------------------------------------------------------


def test_a_broker_that_is_stopped_under_load_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    load = Load(one_of_each())
    for _ in range(2):
        before = load.answers
        with BrokerProcess(tmp_path, log=SMALL_SEGMENTS) as broker:
            load.start(broker.ready())
            until(lambda: load.answers > before + 500, "answers")  # noqa: B023
            broker.stop()
            load.wait()
    rows = rows_of(tmp_path / "data")  # a clean stop closes the last segment
    assert check_kept(rows, load.publishers) >= load.answers


@pytest.fixture
def no_row_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no thread that reads closed segments once more, to write their row indexes."""
    monkeypatch.setattr(RowIndexing, "start", lambda _: None)


@pytest.mark.usefixtures("no_row_indexes")
def test_a_log_that_was_closed_is_opened_without_a_walk(tmp_path: Path) -> None:
    load = Load(one_of_each())
    with BrokerProcess(tmp_path, log=SMALL_SEGMENTS) as broker:
        load.start(broker.ready())
        until(lambda: len(segments(broker.data)) > 3, "segments")
        load.stop()
        broker.stop()
    files = FaultyFiles()
    with KeepingBroker(tmp_path / "data", files):
        for path in segments(tmp_path / "data"):
            assert files.read_bytes[path.name] <= HEAD_BYTES_MAX


@pytest.mark.usefixtures("no_row_indexes")
def test_after_a_kill_only_the_last_segment_is_walked(tmp_path: Path) -> None:
    load = Load(one_of_each())
    with BrokerProcess(tmp_path, log=SMALL_SEGMENTS) as broker:
        load.start(broker.ready())
        until(lambda: len(segments(broker.data)) > 3, "segments")
        broker.kill()
        load.wait()
    files = FaultyFiles()
    *closed, last = segments(tmp_path / "data")
    last_bytes = last.stat().st_size  # there may be no message in it: then it is removed
    unindexed = [path for path in closed if not path.with_suffix(".index").exists()]
    with KeepingBroker(tmp_path / "data", files) as again:
        for path in closed:
            walked = path in unindexed
            assert walked or files.read_bytes[path.name] <= HEAD_BYTES_MAX
        assert len(unindexed) <= 1, "it was killed while one was closed"
        assert files.read_bytes[last.name] <= HEAD_BYTES_MAX + last_bytes
        rows = rows_of(tmp_path / "data")
        count = check_kept(rows, load.publishers)
        assert replayed(again.address, count) == marks(rows)
