"""kill -9 of drivers and brokers: every message is in every table and topic once.

For longer: `make crash-pipeline KILLS=100`. It kills drivers in every job in turn, and brokers under a
driver, first with one log, then with another that replaces it, then with one whose closed segments
are in a bucket alone, until so many processes were killed together with those of
test_recipe_kill.py. The short run has the last one, with a folder in place of the bucket.
"""

import contextlib
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.storage.object_store import ObjectStore
from tests.crash.loads import LamamqPublisher, Publisher, Rheos2Publisher
from tests.crash.pipeline_kills import (
    KILLS,
    SEED,
    START_SECONDS_MAX,
    Moments,
    Reach,
    copied,
    fetch_segments,
    killed,
    latest,
    log_rows,
    marks,
    pipeline_driver,
    publish,
    query,
    rows_in,
)
from tests.support.object_store import bucket, s3_endpoint
from tests.support.served import Served, until

__all__ = ["bucket", "s3_endpoint"]

DONE_SECONDS_MAX = 120.0 + 10 * KILLS
TIERED = "tiered"
LOGS = ("first", "second", TIERED) if KILLS else (TIERED,)
DRIVERS = 13 * KILLS // 100 if KILLS else 1
"""Drivers that are killed with each log."""
BROKERS = ("sink", "bronze", "publication", "silver", "merge") * (-(-KILLS // 34))
"""The moments of a driver at which its broker is killed, with each log."""
UPLOADS = -(-KILLS // 20)
"""Kills of the broker while it copies segments to its object store."""
SEGMENT_BYTES = 1 << 20


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


def settings_of(log: str, store: ObjectStore) -> str:
    """Return the broker's settings for a log."""
    if log != TIERED:
        return ""
    tier = f'[storage.tier]\nurl = "{store.url}"\nlocal_bytes_max = 1'
    return f"[log]\nsegment_bytes_max = {SEGMENT_BYTES}\n{tier}\n"


def test_nothing_is_lost_or_doubled_when_drivers_and_brokers_are_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue("bucket") if KILLS else f"file://{tmp_path}/store"
    store = ObjectStore(place)
    publishers = [
        LamamqPublisher("good-1", value_size=20),
        Rheos2Publisher("good-2", value_size=2_000),  # so that segments are closed
        LamamqPublisher("bad", value_size=20),
        BatchPublisher("batches", topic="batch"),
    ]
    chance = random.Random(SEED)
    folder = tmp_path / "job"
    folder.mkdir()
    data = []
    with Served(tmp_path / "broker", settings_of(LOGS[0], store)) as served:
        for name in LOGS:
            served.config = settings_of(name, store)
            if data:
                replace_log(served, folder, data[-1])
                for each in publishers:
                    if isinstance(each, Rheos2Publisher):
                        each.created.clear()  # the topics of the log before are gone
            before = sum(each.next_number for each in marked(publishers))
            moments = Moments(folder, served.data)
            kill_drivers(served, folder, publishers, moments, chance)
            brokers = (*BROKERS, *["upload"] * UPLOADS) if name == TIERED else BROKERS
            finish(served, folder, publishers, moments, before=before, brokers=brokers)
            data.append(served.data.with_name(f"data-{name}"))
        served.kill()
        served.data.rename(data[-1])
    assert fetch_segments(data[-1], store), "no segment was in the object store alone"
    print(f"{sum(killed.values())} killed: {dict(killed)}")  # noqa: T201
    check(data, folder, publishers)


def kill_drivers(
    served: Served,
    folder: Path,
    publishers: list[Publisher],
    moments: Moments,
    chance: random.Random,
) -> None:
    """Kill drivers in each of their jobs in turn."""
    waiting = list(moments.all) if KILLS else ["silver"]
    with contextlib.ExitStack() as ends:
        for number in range(DRIVERS):
            publish(served, publishers)
            moments.begin()
            wanted = waiting[number % len(waiting)]
            mode = {"publication": "gold", "rebuild": "rebuild"}.get(wanted, "plain")
            if mode == "rebuild" and not rows_in(folder / "warehouse" / "silver" / "latest"):
                mode, wanted = "plain", "merge"  # nothing to rebuild yet
            driver = pipeline_driver(served, folder, mode)
            ends.callback(driver.kill)
            reach = Reach(served, driver, publishers, moments)
            for _ in range(chance.randrange(3) if KILLS else 1):  # not always the first batch
                reach(wanted)
                if KILLS:
                    time.sleep(chance.random() * 0.5)
            reach(wanted)
            if KILLS and wanted not in {"publication", "merge"}:  # whose moments are short
                time.sleep(chance.random() * 0.1)
            both = bool(KILLS) and chance.random() < 0.2
            if both:
                served.kill()
                killed["broker with its driver"] += 1
            driver.kill(whole=chance.random() < 0.7)
            killed[f"driver in {wanted}"] += 1
            if KILLS:
                print(f"{sum(killed.values())} killed, in {wanted}", flush=True)  # noqa: T201
                if both:
                    served.start()


def replace_log(served: Served, folder: Path, aside: Path) -> None:
    """Start the broker with another log; the pipeline refuses it until its checkpoint is deleted."""
    served.kill()
    served.data.rename(aside)
    served.start()
    rows = rows_in(folder / "warehouse" / "bronze")
    driver = pipeline_driver(served, folder, "plain")
    try:
        until(
            lambda: driver.process.poll() is not None,
            "a refused log",
            seconds_max=START_SECONDS_MAX,
        )
    finally:
        driver.kill()
    assert driver.process.returncode == 1
    assert "failOnDataLoss" in driver.output.read_text()[-20_000:]
    assert rows_in(folder / "warehouse" / "bronze") == rows
    for checkpoint in (folder / "warehouse" / "_checkpoints" / "bronze", folder / "sink"):
        shutil.rmtree(checkpoint)


def finish(
    served: Served,
    folder: Path,
    publishers: list[Publisher],
    moments: Moments,
    *,
    before: int,
    brokers: Sequence[str],
) -> None:
    """Let a driver do all that is left, while brokers are killed; `before` are of earlier logs."""
    publish(served, publishers)
    moments.begin()
    driver = pipeline_driver(served, folder, "gold" if KILLS else "plain")
    try:
        reach = Reach(served, driver, publishers, moments)
        for name in brokers or ("sink",):
            reach(name)
            served.kill()
            killed[f"broker in {name}"] += 1
            time.sleep(0.3)
            served.start()
            if KILLS:
                publish(served, publishers)
                print(f"{sum(killed.values())} killed, a broker in {name}", flush=True)  # noqa: T201
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
            if copied(served) < total - before:
                return False
            if KILLS and not moments.gold_is_through(all_messages):
                return False
            return moments.idle()

        driver.wait(done, "all tables", seconds_max=DONE_SECONDS_MAX, look_seconds=0.2)
    finally:
        driver.kill()


def check(data: list[Path], folder: Path, publishers: list[Publisher]) -> None:
    """Compare tables and topics with what was sent, message by message."""
    tables = folder / "warehouse"
    expected = sorted(
        (each.name, number) for each in marked(publishers) for number in range(each.next_number)
    )
    found: dict[str, list[bytes]] = {"in": [], "out": [], "gold": [], "batch": []}
    for topic, value in (row for each in data for row in log_rows(each)):
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
