"""kill -9 of the program of docs/spark.md that stores and publishes: each row is in both once.

`make crash-pipeline KILLS=100` kills so many processes together with those of test_pipeline_kill.py.
"""

import contextlib
import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import deltalake

from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from tests.crash.loads import LamamqPublisher
from tests.crash.pipeline_kills import KILLS, SEED, Driver, killed, log_rows, query, rows_in
from tests.support.served import Served

ROWS = 50
MESSAGES = 300
"""Before each driver."""
COLD_EVERY = 7
"""One message of so many is not stored by the program."""
DRIVERS = 18 * KILLS // 100 if KILLS else 1
DONE_SECONDS_MAX = 300.0


class Moments:
    """The part of a batch in which the program is."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._table = folder / "srv" / "tables" / "hot"
        self._checkpoint = folder / "srv" / "checkpoints" / "hot"
        self._sinks = data / "sinks"
        self.all: Mapping[str, Callable[[], bool]] = {
            "stored, not published": lambda: self._stored() > self._published(),
            "published, not completed": lambda: self._published() > self._completed(),
            "begun, not stored": lambda: self._begun() > max(self._stored(), self._before),
        }
        self.begin()

    def begin(self) -> None:
        """Look at the batches before a driver starts."""
        self._before = self._begun()

    def idle(self) -> bool:
        """Return whether all batches are completed."""
        return self._begun() == self._completed() == self._published()

    def _begun(self) -> int:
        return _newest(self._checkpoint / "offsets")

    def _completed(self) -> int:
        return _newest(self._checkpoint / "commits")

    def _stored(self) -> int:
        if not deltalake.DeltaTable.is_deltatable(str(self._table)):
            return -1
        done = deltalake.DeltaTable(str(self._table)).transaction_version("hot")
        return -1 if done is None else done

    def _published(self) -> int:
        for state in self._sinks.glob("hot*/writer.json"):
            with contextlib.suppress(ValueError):
                return int(json.loads(state.read_bytes())["epoch"])
        return -1


def _newest(folder: Path) -> int:
    return max((int(each.name) for each in folder.glob("[0-9]*")), default=-1)


class Readings(LamamqPublisher):
    """A publisher of temperatures, each another one; some are below the program's limit."""

    def send_more(self, served: Served) -> None:
        self.connect(served.address)
        numbers = range(self.next_number, self.next_number + MESSAGES)
        self.next_number += MESSAGES
        self.waiting += numbers
        self.write(b"".join(self.frame(n, str(self.topic), reading(n)) for n in numbers))
        self.read_until(lambda: not self.waiting)
        assert not self.failed
        self.disconnect()


def reading(number: int) -> bytes:
    return b"-%d" % number if number % COLD_EVERY == 0 else b"%d" % (number + 10)


def test_the_table_and_the_topic_have_each_row_once(tmp_path: Path) -> None:
    publisher = Readings("sensor", topic="sensors/1")
    chance = random.Random(SEED)
    folder = tmp_path / "job"
    folder.mkdir()
    with Served(tmp_path / "broker") as served, contextlib.ExitStack() as ends:
        moments = Moments(folder, served.data)
        names = list(moments.all)
        for number in range(DRIVERS):
            publisher.send_more(served)
            moments.begin()
            driver = Driver(
                folder, "tests.crash.recipe_driver", served.endpoint, str(folder), str(ROWS)
            )
            ends.callback(driver.kill)
            name = names[number % len(names)]
            driver.wait(moments.all[name], name, look_seconds=0.002)
            if KILLS:
                time.sleep(chance.random() * 0.05)
                if chance.random() < 0.3:
                    served.kill()
                    killed["broker with the recipe"] += 1
            driver.kill(whole=chance.random() < 0.7)
            killed[f"recipe: {name}"] += 1
            if KILLS:
                print(f"{sum(killed.values())} killed, {name}", flush=True)  # noqa: T201
                served.restart()
        driver = Driver(
            folder, "tests.crash.recipe_driver", served.endpoint, str(folder), str(ROWS)
        )
        ends.callback(driver.kill)
        hot = [n + 10 for n in range(publisher.next_number) if n % COLD_EVERY]
        table = folder / "srv" / "tables" / "hot"
        driver.wait(
            lambda: rows_in(table) >= len(hot) and published(served) >= len(hot) and moments.idle(),
            "all rows",
            seconds_max=DONE_SECONDS_MAX,
            look_seconds=0.1,
        )
        driver.kill()
    stored = sorted(int(row[0]) for row in query(table, "select celsius from t"))
    assert stored == hot
    told = [float(value) for topic, value in log_rows(served.data) if topic == "hot/sensors/1"]
    assert sorted(map(int, told)) == hot
    if KILLS:
        print(f"{sum(killed.values())} killed: {dict(killed)}")  # noqa: T201
        # Together with the drivers and brokers of test_pipeline_kill.py, if it ran before.
        assert sum(killed.values()) >= KILLS or not killed["driver in bronze"]


def published(served: Served) -> int:
    with FlightClient(served.endpoint) as client:
        bounds = client.bounds()[0]
        asked = ReadRange(bounds.horizon, bounds.end, topics=["hot/sensors/1"], columns=["offset"])
        return sum(map(len, client.read(asked)))
