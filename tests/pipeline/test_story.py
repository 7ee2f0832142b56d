"""Messages of all five protocols are in silver and gold exactly, by sums of those who sent them."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.pipeline.config_loading import load
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.warehouse import Warehouse
from tests.pipeline.story import Sum, differences, tell

MESSAGES = 10_000


def test_what_five_protocols_send_is_in_every_table_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(config: Path) -> None:
        settings = load(config, environment={})
        with Warehouse(settings.warehouse) as warehouse:
            Pipeline(spark, warehouse, settings).run_once()

    _, problems = tell(tmp_path, messages=MESSAGES, run=run)
    assert problems == []
    # The comparison sees it if a table has less than was sent, or more.
    nothing = {("rheos1", "story/rheos1/0"): Sum()}
    assert len(differences(tmp_path / "warehouse", nothing)) > 4 * 5
