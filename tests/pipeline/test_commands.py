"""`penstock pipeline` and `penstock sql`, as they are typed."""

import json
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.pipeline import pipeline_commands
from penstock.cli.sql import sql
from penstock.errors import ConfigError
from tests.support.written_log import WrittenLog, message

CONFIG = """
[source]
path = "data"
[gold]
enabled = false
[[silver]]
name = "numbers"
topics = ["a/#"]
field = [{ name = "number", type = "int", required = true }]
"""


@pytest.mark.usefixtures("spark")
def test_a_log_is_run_looked_at_mended_and_asked(tmp_path: Path, spark: SparkSession) -> None:
    app = typer.Typer()
    app.add_typer(pipeline_commands, name="pipeline")
    app.command("sql")(sql)
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    config = ["--config", str(tmp_path / "pipeline.toml")]

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, *config], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    with WrittenLog(tmp_path / "data") as log:
        values = [b'{"number": 1}', b'{"number": "two"}', b'{"number": 3}']
        log.put(*(message("a/b", value, n) for n, value in enumerate(values)))
    run("pipeline", "run", "--once")
    status = json.loads(run("pipeline", "status", "--json"))
    rows = {name: table["rows"] for name, table in status["tables"].items()}
    assert rows == {"bronze": 3, "dead_letters": 1, "numbers": 2}
    assert status["running"] is False
    assert status["stages"]["silver.numbers"]["dead_letters"] == 1
    text = run("pipeline", "status")
    assert text.startswith("not running\n")
    assert "silver.numbers: 2 rows in 1 batches" in text
    assert run("pipeline", "replay-dead-letters") == "numbers: 0 replayed, 1 left\n"

    query = "select offset, cast(value as string) as text from `a/+` order by offset"
    lines = run("sql", query, "--json").splitlines()
    assert [json.loads(line)["text"] for line in lines] == [each.decode() for each in values]
    table = run("sql", "select number, topic, value from numbers join bronze using (topic, offset)")
    assert table.splitlines()[0].split() == ["number", "topic", "value"]
    assert '1       a/b    {"number": 1}' in table
    out = tmp_path / "out.csv"
    run("sql", "select number, topic from numbers order by number", "--out", str(out))
    assert out.read_text() == '"number","topic"\n1,"a/b"\n3,"a/b"\n'
    run("sql", "select * from numbers", "--out", str(tmp_path / "out.parquet"))
    assert spark.read.parquet(str(tmp_path / "out.parquet")).count() == 2


def test_a_wrong_configuration_and_a_wrong_schema_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.toml: cannot be read"):
        CliRunner().invoke(
            pipeline_commands,
            ["status", "--config", str(tmp_path / "nothing.toml")],
            catch_exceptions=False,
        )
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    arguments = [
        "replay-dead-letters",
        "--schema",
        "x",
        "--config",
        str(tmp_path / "pipeline.toml"),
    ]
    done = CliRunner().invoke(pipeline_commands, arguments)
    assert done.exit_code == 2
    assert "there are: numbers" in done.output
