"""Arrow Flight beside the event loop: it holds up no client, and no client holds up its end."""

import threading
import time
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from tests.support.flight import rows, serve_tables
from tests.support.herald_bytes import HeraldPeer, subscriber
from tests.support.live import LiveBroker

ROWS = 65_536
PING_SECONDS_MAX = 0.05


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with half a million messages in it."""
    data = tmp_path_factory.mktemp("filled")
    with LiveBroker(data=data) as live, FlightClient(serve_tables(live, data)) as client:
        batch = rows([bytes(100)] * ROWS, topics=[f"t/{number % 50}" for number in range(ROWS)])
        client.stage([batch] * 8, writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
    return data


def ping_seconds(peer: HeraldPeer) -> float:
    """How long the broker takes to answer a PING."""
    sent = time.perf_counter()
    peer.settle()
    return time.perf_counter() - sent


def test_clients_are_answered_while_tables_are_read_at_full_speed(filled: Path) -> None:
    with LiveBroker(data=filled) as live:
        endpoint = serve_tables(live, filled)
        end = live.server.broker.log.next_offset
        stopping = threading.Event()
        read = []

        def read_all() -> None:
            with FlightClient(endpoint) as client:
                while not stopping.is_set():
                    read.append(sum(len(batch) for batch in client.read(ReadRange(0, end))))

        threads = [threading.Thread(target=read_all) for _ in range(2)]
        with subscriber(live) as peer:
            for thread in threads:
                thread.start()
            times = []
            while len(read) < 4:
                times.append(ping_seconds(peer))
            stopping.set()
        for thread in threads:
            thread.join(30)
        times.sort()
        assert set(read) == {end}
        assert times[int(len(times) * 0.99)] < PING_SECONDS_MAX


def test_a_reader_that_stops_reading_does_not_hold_up_the_end(filled: Path) -> None:
    with LiveBroker(data=filled) as live:
        endpoint = serve_tables(live, filled)
        client = FlightClient(endpoint)
        batches = client.read(ReadRange(0, live.server.broker.log.next_offset))
        assert len(next(batches))
        started = time.monotonic()
    assert time.monotonic() - started < 8
    with pytest.raises(PenstockError):
        for _ in batches:
            pass
    client.close()
