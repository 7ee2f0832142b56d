"""A gold table that goes back to a topic: each result is there once, whatever is killed meanwhile."""

import concurrent.futures
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.flight.client import FlightClient
from penstock.pipeline.config import SourceConfig
from penstock.pipeline.gold_jobs import REVISION
from penstock.pipeline.offsets import Stream
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.publication import AfterPublishing, Job, PublishJob
from penstock.pipeline.tables import Table
from penstock.pipeline.warehouse import Warehouse
from tests.support.flight import table
from tests.support.served import Served

SECONDS_MAX = 120


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "broker") as found:
        yield found


class Counting:
    """A gold job: each step changes the row of one name and leaves the others as they are."""

    name = "gold.counts"

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self.table = table
        self._spark = spark
        self.steps = 0

    def offsets(self, streams: Iterable[Stream]) -> dict[Stream, int]:
        return dict.fromkeys(streams, 0)

    def step(self, stage: StageProgress) -> bool:
        stage.batch_rows = 1
        self.steps += 1
        rows = [("ever", 1, 1)] if self.steps == 1 else []
        frame = self._spark.createDataFrame(
            [*rows, (f"step {self.steps}", self.steps, self.steps)],
            f"name string, number long, {REVISION} long",
        )
        self.table.evolve_schema(frame)
        self.table.commit(add=self.table.write(frame), transactions={REVISION: self.steps})
        return False


def does(job: Job) -> bool:
    """Do a step; return whether it changed anything."""
    stage = StageProgress()
    assert not job.step(stage), "there is no more to do"
    return stage.batch_rows > 0


def published(served: Served) -> list[dict[str, Any]]:
    with FlightClient(served.endpoint) as client:
        values = table(client, columns=["value"], topics=["results"]).column("value").to_pylist()
    return [json.loads(value) for value in values]


def results(steps: int) -> list[dict[str, Any]]:
    return [
        {"name": "ever", "number": 1},
        *({"name": f"step {each}", "number": each} for each in range(1, steps + 1)),
    ]


def test_what_was_published_and_not_marked_when_the_driver_died_is_not_published_again(
    spark: SparkSession, warehouse: Warehouse, served: Served, tmp_path: Path
) -> None:
    found = warehouse.gold("counts", partition_by=())
    job = Counting(spark, found)
    source = SourceConfig(endpoint=served.endpoint)
    publication = PublishJob(spark, found, "results", source, bronze=warehouse.bronze())
    for _ in range(2):
        assert does(job)
        before = tmp_path / "before"
        shutil.copytree(found.folder, before)
        assert does(publication)
        # The files are those of a driver that was killed before its mark; then another starts.
        shutil.rmtree(found.folder)
        before.rename(found.folder)
        served.restart()
        found = warehouse.gold("counts", partition_by=())
        job.table = found
        publication = PublishJob(spark, found, "results", source, bronze=warehouse.bronze())
        assert not publication.settled
        # In a thread that has done nothing else, as after a start.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            assert thread.submit(does, publication).result(SECONDS_MAX)
        assert publication.settled
        assert not does(publication)
    assert sorted(published(served), key=str) == sorted(results(2), key=str)


def test_a_table_does_not_change_while_the_broker_may_have_rows_that_it_does_not_know_of(
    spark: SparkSession, warehouse: Warehouse, served: Served, tmp_path: Path
) -> None:
    found = warehouse.gold("counts", partition_by=())
    publication = PublishJob(
        spark, found, "results", SourceConfig(endpoint=served.endpoint), bronze=warehouse.bronze()
    )
    job = AfterPublishing(Counting(spark, found), [publication])
    assert not does(job), "nobody has looked yet"
    assert not does(publication)
    assert does(job)
    before = tmp_path / "before"
    shutil.copytree(found.folder, before)
    assert does(publication)
    # As if its answer had been lost: the broker has the rows, the table does not know.
    shutil.rmtree(found.folder)
    before.rename(found.folder)
    found.log = warehouse.gold("counts", partition_by=()).log
    served.kill()
    with pytest.raises(Exception, match="no answer by Arrow Flight"):
        does(publication)
    assert not does(job), "the table would change, and its rows be published once more"
    served.start()
    assert does(publication)
    assert does(job)
    assert does(publication)
    assert sorted(published(served), key=str) == sorted(results(2), key=str)
