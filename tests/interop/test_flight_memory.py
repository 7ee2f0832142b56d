"""Reads by Flight draw from the memory budget before they read, and wait where there is none."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from penstock.limits import FLIGHT_READ_COPIES, MIB, PLAIN_COLUMN_BYTES_MAX
from penstock.memory import MemoryBudget, Purpose
from penstock.server.flight import read_memory
from tests.support.flight import rows, serve_tables
from tests.support.live import LiveBroker
from tests.support.served import until

BUDGET = 64 * MIB
SIZE = 4 * MIB
COUNT = 3


@pytest.fixture
def memory() -> MemoryBudget:
    return MemoryBudget(BUDGET, principal_share=1.0)


@pytest.fixture
def client(memory: MemoryBudget, tmp_path: Path) -> Iterator[FlightClient]:
    with (
        LiveBroker(memory=memory, data=tmp_path) as live,
        FlightClient(serve_tables(live, tmp_path)) as client,
    ):
        client.stage([rows([bytes(SIZE)] * COUNT)], writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
        yield client


def usable(memory: MemoryBudget) -> int:
    """The largest draw that is possible now."""
    return memory.bytes_max - memory.bytes_max // 8 - memory.used


def test_a_read_holds_what_it_takes_until_the_client_has_it(
    client: FlightClient, memory: MemoryBudget
) -> None:
    """Once broken: only the batch was drawn, after the log had been read into memory."""
    before = memory.fixed(Purpose.FLIGHT)
    reading = client.read(ReadRange(0, COUNT, columns=["value"]))
    next(reading)
    needed = before + FLIGHT_READ_COPIES * SIZE
    until(lambda: memory.fixed(Purpose.FLIGHT) >= needed, "the memory of the next batch")
    assert sum(map(len, reading)) == COUNT - 1
    assert memory.fixed(Purpose.FLIGHT) == before


def test_a_read_waits_for_memory_and_goes_on_when_there_is_some(
    client: FlightClient, memory: MemoryBudget
) -> None:
    held = memory.draw(Purpose.OUTPUT, usable(memory) - SIZE)
    allocated = pa.total_allocated_bytes()
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(sum(map(len, client.read(ReadRange(0, COUNT)))))
    )
    thread.start()
    thread.join(0.5)
    assert not found
    assert pa.total_allocated_bytes() - allocated < SIZE, "nothing is read meanwhile"
    held.release()
    thread.join(20)
    assert found == [COUNT]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads wait for memory shortly."""
    defaults = read_memory.ReadMemory.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "seconds_max", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_read_that_finds_no_memory_fails_by_name(
    client: FlightClient, memory: MemoryBudget
) -> None:
    with (
        memory.draw(Purpose.OUTPUT, usable(memory) - SIZE),
        pytest.raises(Exception, match="memory is used up"),
    ):
        list(client.read(ReadRange(0, COUNT)))
    assert sum(map(len, client.read(ReadRange(0, COUNT)))) == COUNT


def test_a_long_name_in_many_rows_makes_no_large_batch(client: FlightClient) -> None:
    """Once broken: a column of 64 MiB, for each of the reads at a time."""
    count = 400
    name = "a/" + "n" * 60_000
    batch = pa.RecordBatch.from_arrays(
        [pa.array([name] * count), pa.array([b"v"] * count)], names=["topic", "value"]
    )
    for first in range(0, count, 100):
        part = batch.slice(first, 100)
        client.stage([part], writer="names", epoch=first, partition=0)
        client.publish_epoch("names", first, [0])
    found = list(client.read(ReadRange(COUNT, COUNT + count)))
    assert sum(map(len, found)) == count
    assert max(each.column("topic").nbytes for each in found) <= PLAIN_COLUMN_BYTES_MAX + MIB


@pytest.mark.usefixtures("impatient")
def test_a_list_of_topics_is_drawn_before_it_is_sent(
    client: FlightClient, memory: MemoryBudget
) -> None:
    """Once broken: any number of calls could hold a list of all topics each."""
    topics = [f"a/{'n' * 60_000}{number}" for number in range(50)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(topics), pa.array([b"v"] * len(topics))], names=["topic", "value"]
    )
    client.stage([batch], writer="names", epoch=0, partition=0)
    client.publish_epoch("names", 0, [0])
    with (
        memory.draw(Purpose.OUTPUT, usable(memory) - 4 * MIB),
        pytest.raises(Exception, match="memory is used up"),
    ):
        client.topics()
    assert set(topics) < set(client.topics())
