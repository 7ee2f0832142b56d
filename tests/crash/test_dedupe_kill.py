"""kill -9 of the broker while messages with keys are published: each is stored once in the end."""

import os
import random
import threading
import time
from pathlib import Path

from penstock.client import ConnectFailed, PeerError, connect_sync
from penstock.client.errors import ConnectionLost, TimedOut
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from tests.support.served import Served

KILLS = int(os.environ.get("PENSTOCK_DEDUPE_KILLS", "2"))
PUBLISHERS = 3
MESSAGES = 150


def publish(broker: Served, number: int, counts: list[int]) -> None:
    """Publish messages, each again and again until it is acknowledged."""
    host, port = broker.address
    keys = [f"{number}-{each}" for each in range(MESSAGES)]
    while keys:
        try:
            with connect_sync(
                f"tcp://{host}:{port}", protocol="lamamq", timeout=5, reconnect=False
            ) as client:
                while keys:
                    client.publish(f"orders/{number}", keys[0].encode(), dedupe=keys[0])
                    del keys[0]
                    counts[number] += 1
        except (ConnectFailed, ConnectionLost, TimedOut, PeerError):
            time.sleep(0.01)  # the broker is not back yet


def test_messages_that_are_sent_again_after_a_kill_are_stored_once(tmp_path: Path) -> None:
    randomness = random.Random(11)
    counts = [0] * PUBLISHERS
    with Served(tmp_path) as broker:
        threads = [
            threading.Thread(target=publish, args=(broker, number, counts), daemon=True)
            for number in range(PUBLISHERS)
        ]
        for thread in threads:
            thread.start()
        for kill in range(KILLS):
            least = (kill + randomness.random()) * PUBLISHERS * MESSAGES / (KILLS + 1)
            while sum(counts) < least and any(thread.is_alive() for thread in threads):
                time.sleep(0.001)
            broker.restart()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), counts
    view = LogView(tmp_path / "data", partition=0)
    rows = [row for batch in plain_records(record_batches(view)) for row in batch.to_pylist()]
    stored = [row["value"].decode() for row in rows]
    assert sorted(stored) == sorted(
        f"{n}-{each}" for n in range(PUBLISHERS) for each in range(MESSAGES)
    )
