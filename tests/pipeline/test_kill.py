"""Every message is in every table once, though the pipeline is killed again and again."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.bronze import positions_of
from penstock.pipeline.config import BronzeConfig
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.warehouse import Warehouse
from tests.pipeline.killed import config
from tests.support.written_log import WrittenLog, message

KILLS = int(os.environ.get("PENSTOCK_PIPELINE_KILLS", "1"))
GOLD = KILLS > 1
"""Gold is brought up to silver's input in the same way; it is killed too where there is time."""
MESSAGES = 8_000 * KILLS
SECONDS_MAX = 90.0


def until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert process.poll() is None, "the pipeline ended by itself"
        assert time.monotonic() < deadline, "the pipeline does not get on"
        time.sleep(0.001)


def test_a_pipeline_that_is_killed_in_the_middle_loses_nothing_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, folder = tmp_path / "data", tmp_path / "warehouse"
    bad = set(range(5, MESSAGES, 97))
    with WrittenLog(data) as log:
        for first in range(0, MESSAGES, 100):
            log.put(
                *(
                    message(f"n/{n % 7}", b"bad" if n in bad else b'{"number":%d}' % n, n)
                    for n in range(first, first + 100)
                )
            )
    settings = config(str(data), str(folder), gold=GOLD)
    chance = random.Random(KILLS)
    layers = ["silver/numbers", "gold/traffic"] if GOLD else ["silver/numbers"]
    command = [sys.executable, "-m", "tests.pipeline.killed", str(data), str(folder)]
    command.append("gold" if GOLD else "plain")
    for _ in range(KILLS):
        process = subprocess.Popen(command, start_new_session=True)  # noqa: S603
        watched = Warehouse(settings.warehouse)

        def version(table: str, watched: Warehouse = watched) -> int:
            return len(list((watched.folder / table / "_delta_log").glob("*.json")))

        begun = {name: version(name) for name in ("bronze", *layers)}
        try:
            table = chance.choice(layers)
            steps = chance.randrange(1, 4)
            until(lambda: version(table) >= begun[table] + steps, process)  # noqa: B023
            until(lambda: version("bronze") > begun["bronze"] + chance.randrange(3), process)  # noqa: B023
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(SECONDS_MAX)
    with Warehouse(settings.warehouse) as warehouse:
        before = sum(positions_of(warehouse.bronze()).values())
        assert before > 0
        if KILLS == 1:
            assert before < MESSAGES, "it was killed when all was done"
        whole = msgspec.structs.replace(settings, bronze=BronzeConfig(), silver_rows_max=1_000_000)
        Pipeline(spark, warehouse, whole).run_once()
        tables = warehouse.tables()

        def offsets(name: str) -> list[int]:
            return sorted(row[0] for row in tables[name].read(spark).select("offset").collect())

        assert offsets("bronze") == list(range(MESSAGES))
        assert offsets("dead_letters") == sorted(bad)
        rows = tables["numbers"].read(spark).select("number", "offset").collect()
        assert sorted(map(tuple, rows)) == [(n, n) for n in range(MESSAGES) if n not in bad]
        if not GOLD:
            return
        traffic = tables["traffic"].read(spark).agg(f.sum("messages"), f.sum("bytes")).collect()
        values = (3 if n in bad else len(b'{"number":%d}' % n) for n in range(MESSAGES))
        assert tuple(traffic[0]) == (MESSAGES, sum(values))
        sessions = tables["sessions"].read(spark).select("messages").collect()
        assert [row[0] for row in sessions] == [MESSAGES]
