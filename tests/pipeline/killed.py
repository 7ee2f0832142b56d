"""A pipeline that is there to be killed: `python -m tests.pipeline.killed DATA WAREHOUSE gold|plain`."""

import sys

from penstock.pipeline.config import (
    BronzeConfig,
    FieldConfig,
    GoldConfig,
    PipelineConfig,
    SilverConfig,
    SourceConfig,
    WarehouseConfig,
)
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.warehouse import Warehouse
from penstock.spark.session import session

NUMBERS = SilverConfig(
    name="numbers",
    topics=("n/#",),
    field=(FieldConfig(name="number", type="long", required=True),),
)


def config(data: str, warehouse: str, *, gold: bool) -> PipelineConfig:
    """Small batches, so that there are many."""
    return PipelineConfig(
        source=SourceConfig(path=data),
        warehouse=WarehouseConfig(
            folder=warehouse, compact_files_min=4, maintain_seconds=0.5, vacuum_hours=168
        ),
        bronze=BronzeConfig(rows_max=500),
        silver=(NUMBERS,),
        silver_rows_max=700,
        silver_seconds=0.05,
        gold=GoldConfig(enabled=gold, seconds=0.05),
    )


def main() -> None:
    """Run until killed."""
    data, folder, gold = sys.argv[1:]
    settings = config(data, folder, gold=gold == "gold")
    with Warehouse(settings.warehouse) as warehouse:
        spark = session("killed", short=True, **{"spark.sql.shuffle.partitions": "1"})
        Pipeline(spark, warehouse, settings).run(lambda _: None)


if __name__ == "__main__":
    main()
