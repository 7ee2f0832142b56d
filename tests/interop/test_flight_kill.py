"""kill -9 of the broker while an epoch is published: the epoch is there whole, and once."""

import contextlib
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import PenstockError
from penstock.flight.client import FlightClient
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import record_batches
from tests.support.flight import rows, table

FLIGHT = re.compile(r"  flight  (grpc://127\.0\.0\.1:\d+) ")
SECONDS_MAX = 20.0
ROWS = 2000
PARTITIONS = (0, 1)
KILLS = 6


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """`penstock serve` with tables, in a process of its own; it ends by kill -9."""
    output = folder / "output.txt"
    command = [sys.executable, "-m", "penstock.cli", "serve", "--listen", "tcp://127.0.0.1:0"]
    with output.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603
            [*command, "--flight", "127.0.0.1:0", "--data", str(folder / "data")],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={
                key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")
            },
        )
    try:
        until(lambda: "Ready." in output.read_text(), "the broker did not start")
        found = FLIGHT.search(output.read_text())
        assert found, output.read_text()
        yield found[1], process
    finally:
        process.kill()
        process.wait(SECONDS_MAX)


def part(epoch: int, partition: int, *, order: int = 1) -> list[pa.RecordBatch]:
    """The rows of a task; it may come with them in another order when it comes again."""
    values = [b"%d/%d/%d;" % (epoch, partition, number) + bytes(8000) for number in range(ROWS)][
        ::order
    ]
    return [rows(values[start : start + 500]) for start in range(0, ROWS, 500)]


def written(data: Path, epoch: int, start: int) -> int:
    """How many rows of an epoch a broker that is gone has left in the log, from `start` on."""
    count = 0
    for batch in record_batches(LogView(data), start=start):
        mark = pc.starts_with(batch.column("correlation"), f"spark/{epoch}/")
        count += pc.sum(mark).as_py() or 0
    return count


def stage(client: FlightClient, epoch: int, *, order: int = 1) -> None:
    for each in PARTITIONS:
        client.stage(part(epoch, each, order=order), writer="spark", epoch=epoch, partition=each)


def publish(client: FlightClient, epoch: int) -> None:
    with contextlib.suppress(PenstockError):
        client.publish_epoch("spark", epoch, PARTITIONS)


def begun(client: FlightClient, end: int) -> Callable[[], bool]:
    return lambda: client.bounds()[0].end > end


def finish(client: FlightClient, epoch: int) -> None:
    """A driver that was restarted runs its tasks again, and knows nothing of the first time."""
    stage(client, epoch, order=-1)
    assert client.publish_epoch("spark", epoch, PARTITIONS).rows == ROWS * len(PARTITIONS)
    assert client.publish_epoch("spark", epoch, PARTITIONS).again


@pytest.mark.crash
def test_an_epoch_that_was_cut_short_is_finished_and_none_comes_twice(tmp_path: Path) -> None:
    chance = random.Random(5)
    cut_short = 0
    for epoch in range(KILLS):
        with broker(tmp_path) as (endpoint, process), FlightClient(endpoint) as client:
            if epoch:
                finish(client, epoch - 1)
            stage(client, epoch)
            start = client.bounds()[0].end
            publishing = threading.Thread(target=publish, args=(client, epoch))
            publishing.start()
            if epoch % 4:  # else it is killed before, or at the very start
                until(begun(client, start), "nothing was published")
                time.sleep(chance.random() * 0.02)
            process.kill()
            publishing.join(SECONDS_MAX)
        cut_short += 0 < written(tmp_path / "data", epoch, start) < ROWS * len(PARTITIONS)
    assert cut_short, "no kill was in the middle"
    with broker(tmp_path) as (endpoint, _), FlightClient(endpoint) as client:
        finish(client, KILLS - 1)
        found = table(client, columns=["value", "correlation"])
    marks = [value.partition(b";")[0].decode() for value in found.column("value").to_pylist()]
    assert len(marks) == len(set(marks)) == KILLS * ROWS * len(PARTITIONS)
    assert [mark.rpartition("/")[0] for mark in marks] == [
        each.removeprefix("spark/") for each in found.column("correlation").to_pylist()
    ]
    for start in range(0, len(marks), ROWS):  # each task is whole, in one order or the other
        numbers = [int(mark.rpartition("/")[2]) for mark in marks[start : start + ROWS]]
        assert numbers in (list(range(ROWS)), list(range(ROWS))[::-1])


@pytest.mark.crash
def test_rows_that_were_put_aside_before_a_kill_are_published_after_it(tmp_path: Path) -> None:
    with broker(tmp_path) as (endpoint, _), FlightClient(endpoint) as client:
        client.stage([rows([b"kept"])], writer="w", epoch=0, partition=0)
    half = tmp_path / "data" / "sinks" / "w" / "half.new"
    half.write_bytes(b"what was not finished")
    with broker(tmp_path) as (endpoint, _), FlightClient(endpoint) as client:
        assert not half.exists()
        assert client.publish_epoch("w", 0, [0]).rows == 1
        assert table(client).column("value").to_pylist() == [b"kept"]
    with broker(tmp_path) as (endpoint, _), FlightClient(endpoint) as client:
        assert client.publish_epoch("w", 0, [0]).again
