"""Messages in an object store reach clients of all protocols and of Flight as any others do."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import TierUnavailable
from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.herald import HERALD
from penstock.storage.options import LogOptions, Retention, TierOptions
from tests.support.flight import serve_tables, table
from tests.support.live import LiveBroker

TOPIC = "channel/7"
MANY = 12
SECONDS_MAX = 20.0


class Store:
    """A store on a disk that can be away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self._away = folder.with_name("away")

    def leave(self) -> None:
        self.folder.rename(self._away)
        self.folder.write_text("a file in place of the folder")

    def come_back(self) -> None:
        self.folder.unlink()
        self._away.rename(self.folder)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("penstock.storage.arrow.write.tiering.TIER_SECONDS", 0.02)
    monkeypatch.setattr("penstock.storage.arrow.read.segment_cache.TIER_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("penstock.core.catch_up.TIER_RETRY_SECONDS", 0.05)
    return Store(tmp_path / "store")


@pytest.fixture
def live(tmp_path: Path, store: Store) -> Iterator[LiveBroker]:
    """A broker whose messages are in the store, except the last ones."""
    tier = TierOptions(store.url, local=Retention(bytes_max=1))
    options = LogOptions(segment_bytes_max=1, tier=tier)
    with LiveBroker(data=tmp_path / "data", log_options=options) as broker:
        host, port = broker.address
        with penstock.connect_sync(f"tcp://{host}:{port}", protocol="rheos2") as client:
            for each in range(MANY):
                client.publish(TOPIC, b"%d" % each)
        broker.until(lambda: _local_segments(broker) == 1)
        yield broker


def _local_segments(broker: LiveBroker) -> int:
    status = broker.server.broker.reader.status()
    assert status.tier.waiting_segments + status.tier.segments == MANY - 1
    return status.tier.local_segments + status.tier.waiting_segments


# herald has no start position in a subscription.
@pytest.mark.parametrize(
    "protocol", [each for each in PROTOCOLS if each is not HERALD], ids=lambda each: each.label
)
def test_replay_waits_for_the_store_and_then_has_every_message(
    protocol: Protocol, live: LiveBroker, store: Store
) -> None:
    store.leave()
    host, port = live.address
    with (
        penstock.connect_sync(f"tcp://{host}:{port}", protocol=protocol) as client,
        client.subscribe(f"{TOPIC}@earliest") as messages,
    ):
        with pytest.raises(TimeoutError):
            messages.get(timeout=0.3)
        store.come_back()
        found = [messages.get(timeout=SECONDS_MAX).value for _ in range(MANY)]
    assert [bytes(each) for each in found] == [b"%d" % each for each in range(MANY)]


def test_flight_names_the_fault_and_reads_on_later(
    live: LiveBroker, store: Store, tmp_path: Path
) -> None:
    with FlightClient(serve_tables(live, tmp_path / "data")) as client:
        assert client.bounds()[0].horizon == 0
        store.leave()
        with pytest.raises(TierUnavailable) as caught:
            list(client.read(ReadRange(0, MANY)))
        assert str(tmp_path) not in str(caught.value)
        store.come_back()
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                found = table(client)
                break
            except TierUnavailable:
                assert time.monotonic() < deadline
        assert found.column("value").to_pylist() == [b"%d" % each for each in range(MANY)]
