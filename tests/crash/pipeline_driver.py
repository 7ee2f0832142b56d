"""A driver that is there to be killed: tables, a published table and a stream that publishes.

    python -m tests.crash.pipeline_driver ENDPOINT FOLDER ROWS gold|plain|rebuild

takes `load/#` and `batch` of a broker in batches of ROWS: into the warehouse FOLDER/warehouse, whose table
`traffic`, with gold, goes back to the topic `gold`; and, by a stream of its own, as they are to the
topic `out`. With `rebuild` it computes the silver tables again, over and over.
"""

import sys
from pathlib import Path

from penstock.pipeline.config import (
    BronzeConfig,
    FieldConfig,
    GoldConfig,
    MergeConfig,
    PipelineConfig,
    PublishConfig,
    SilverConfig,
    SourceConfig,
    WarehouseConfig,
)
from penstock.pipeline.pipeline import Pipeline, rebuild
from penstock.pipeline.progress import Progress
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.session import session

TOPICS = "load/#"
BATCH_TOPIC = "batch"
NUMBERS = SilverConfig(
    name="numbers",
    topics=(TOPICS,),
    format="text",
    pattern="<(good-[0-9]):([0-9]+)>[a-z]*",
    field=(
        FieldConfig(name="publisher", required=True),
        FieldConfig(name="number", type="long", required=True),
    ),
)

LATEST = SilverConfig(
    name="latest",
    topics=(TOPICS,),
    format="text",
    pattern="<([a-z0-9-]+):([0-9]+)>[a-z]*",
    field=(
        FieldConfig(name="publisher", required=True),
        FieldConfig(name="number", type="long", required=True),
    ),
    merge=MergeConfig(key=("publisher",), order_by="number"),
)
"""The last message of each publisher."""

BATCHES = SilverConfig(
    name="batches",
    topics=(BATCH_TOPIC,),
    format="avro",
    schema_file=str(Path(__file__).with_name("batch.avsc")),
    explode="parts",
    field=(
        FieldConfig(name="publisher", required=True),
        FieldConfig(name="number", path="parts.number", type="long", required=True),
        FieldConfig(
            name="part",
            path="parts",
            type="struct",
            field=(FieldConfig(name="number", type="long"),),
        ),
    ),
)
"""A row for each part of a message."""


def config(endpoint: str, folder: Path, *, rows_max: int, gold: bool) -> PipelineConfig:
    """Small batches, so that there are many."""
    return PipelineConfig(
        source=SourceConfig(endpoint=endpoint, subscribe=f"{TOPICS},{BATCH_TOPIC}"),
        warehouse=WarehouseConfig(
            folder=str(folder / "warehouse"),
            compact_files_min=6,
            maintain_seconds=2.0,
            history_seconds=10.0,
        ),
        bronze=BronzeConfig(rows_max=rows_max),
        silver=(NUMBERS, LATEST, BATCHES),
        silver_rows_max=100 * rows_max if gold else 2 * rows_max,
        silver_seconds=0.1,
        gold=GoldConfig(enabled=gold, seconds=0.1, traffic_window_seconds=1),
        publish=(PublishConfig(table="traffic", topic="gold"),),
    )


def main() -> None:
    """Run until killed."""
    endpoint, folder, rows_max = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    settings = config(endpoint, folder, rows_max=rows_max, gold=sys.argv[4] == "gold")
    with Warehouse(settings.warehouse) as warehouse:
        small = {"spark.sql.shuffle.partitions": "1", "spark.scheduler.mode": "FAIR"}
        spark = session("killed", master="local[2]", short=True, **small)
        spark.conf.set("spark.sql.codegen.wholeStage", "false")  # there are only few rows
        while sys.argv[4] == "rebuild":
            for each in settings.silver:
                rebuild(spark, warehouse, settings, each.name)
        copying = (
            spark.readStream.format("penstock")
            .options(endpoint=endpoint, subscribe=TOPICS, startingOffsets="earliest")
            .options(maxOffsetsPerTrigger=str(rows_max), minPartitions="2")
            .load()
            .selectExpr("'out' as topic", "value")
            .writeStream.format("penstock")
            .options(endpoint=endpoint, checkpointLocation=str(folder / "sink"))
            .start()
        )

        def look(_: Progress) -> None:
            if not copying.isActive:
                raise SystemExit(f"the stream ended by itself: {copying.exception()}")

        Pipeline(spark, warehouse, settings).run(look)


if __name__ == "__main__":
    main()
