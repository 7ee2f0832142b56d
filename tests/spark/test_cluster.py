"""Executors that are processes of their own, and share no folder with the broker, read and write."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.flight import serve_tables
from tests.support.live import LiveBroker

ROWS = 2_000
SECONDS_MAX = 240

PROGRAM = """
import os
import sys
from penstock.spark import scan, session

rows = int(sys.argv[3])
small = {"spark.executor.memory": "512m", "spark.sql.codegen.wholeStage": "false"}
spark = session("cluster", master="local-cluster[2,1,512]", short=True, **small)
where = {"endpoint": sys.argv[1]}
frame = spark.range(0, rows, 1, 4).selectExpr(
    "concat('plant/', id % 7) as topic", "cast(id as string) as value"
)
frame.write.format("penstock").options(**where).mode("append").save()
read = spark.read.format("penstock").options(**where, minPartitions="4").load()
assert sorted(int(row.value) for row in read.collect()) == list(range(rows))
query = (
    spark.readStream.format("penstock")
    .options(**where, startingOffsets="earliest", subscribe="plant/3")
    .load()
    .selectExpr("'copy' as topic", "value")
    .writeStream.format("penstock")
    .options(**where, checkpointLocation=sys.argv[2])
    .trigger(availableNow=True)
    .start()
)
assert query.awaitTermination(120)
copied = scan(spark, **where, subscribe="copy", minPartitions=2)
assert sorted(int(row.value) for row in copied.collect()) == list(range(3, rows, 7))
executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
assert len(executors) == 3, "a driver and two executors"
print("all is there", flush=True)
os._exit(0)  # nobody waits for a cluster to be taken down
"""


@pytest.mark.spark
def test_separate_executors_work_over_flight(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LiveBroker(data=data) as broker:
        endpoint = serve_tables(broker, data)
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROGRAM, endpoint, str(tmp_path / "checkpoint"), str(ROWS)],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert "all is there" in done.stdout
