"""`penstock pipeline` and `penstock sql`, as they are typed."""

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.flight.client import FlightClient
from penstock.pipeline.errors import NotAQuery
from penstock.pipeline.query import run_query
from penstock.server.config import Config, PrincipalConfig, RuleConfig
from penstock.server.credentials import Authenticator
from penstock.storage.object_store import ObjectStore
from tests.support.commands import Commands
from tests.support.flight import rows, serve_tables
from tests.support.live import LiveBroker
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
def test_a_log_is_run_looked_at_mended_and_asked(
    commands: Commands, tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    config = ["--config", str(tmp_path / "pipeline.toml")]

    def run(*arguments: str) -> str:
        done = commands.run(*arguments, *config)
        assert done.code == 0, done
        return done.out

    with WrittenLog(tmp_path / "data") as log:
        values = [b'{"number": 1}', b'{"number": "two"}', b'{"number": 3}']
        log.put(*(message("a/b", value, n) for n, value in enumerate(values)))
    done = commands.run("pipeline", "run", "--once", *config)
    assert "silver.numbers: 2 rows in 1 batch; " in done.err, "the result, also of a short run"
    status = json.loads(run("pipeline", "status", "--json"))
    counts = {name: table["rows"] for name, table in status["tables"].items()}
    assert counts == {"bronze": 3, "dead_letters": 1, "numbers": 2}
    assert status["running"] is False
    assert status["stages"]["silver.numbers"]["dead_letters"] == 1
    assert status["missing"] == []
    text = run("pipeline", "status")
    assert text.startswith("not running\n")
    assert "silver.numbers: 2 rows in 1 batch; " in text
    another = CONFIG.replace('"numbers"', '"others"')
    (tmp_path / "pipeline.toml").write_text(another.replace("enabled = false", ""))
    text = run("pipeline", "status")
    for name in ("others", "traffic", "exchanges", "latency", "sessions"):
        assert f"\n{name:<24}not created yet\n" in text
    (tmp_path / "pipeline.toml").write_text(CONFIG)
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
    url = f"file://{tmp_path}/store"
    run("sql", "select number from numbers order by number", "--out", f"{url}/out.csv")
    assert ObjectStore(url).read("out.csv") == b'"number"\n1\n3\n'
    run("sql", "select number from numbers", "--out", f"{url}/out.parquet")
    found = pq.read_table(io.BytesIO(ObjectStore(url).read("out.parquet")))
    assert sorted(found.column("number").to_pylist()) == [1, 3]
    done = commands.run("sql", "select 1", "--out", "ftp://host/out.csv")
    assert "cannot export to ftp://host/out.csv" in done.error_line()


def test_a_query_runs_in_the_spark_of_its_configuration(
    commands: Commands, tmp_path: Path, spark: SparkSession
) -> None:
    """Once broken: `[spark]` was for the pipeline alone, so a query did not run on its cluster."""
    config = tmp_path / "pipeline.toml"
    config.write_text(f'{CONFIG}[spark]\nconf = {{ "spark.penstock.test" = "given" }}\n')
    query = "select '${spark.penstock.test}' as word"  # Spark puts the setting there
    try:
        done = commands.run("sql", query, "--json", "--config", config)
        assert json.loads(done.out) == {"word": "given"}
    finally:
        spark.conf.unset("spark.penstock.test")


def test_spark_does_not_warn_of_functions_that_the_pipeline_calls(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    name = "org.apache.spark.sql.catalyst.analysis.FunctionResolution"
    jvm.java.lang.Class.forName(name)  # a class of this Spark
    assert not jvm.org.apache.logging.log4j.LogManager.getLogger(name).isWarnEnabled()


def test_a_wrong_configuration_and_a_wrong_schema_are_named(
    commands: Commands, tmp_path: Path
) -> None:
    missing = tmp_path / "nothing.toml"
    line = commands.run("pipeline", "status", "--config", missing).error_line()
    assert "nothing.toml: cannot be read" in line
    config = tmp_path / "pipeline.toml"
    config.write_text(CONFIG)
    arguments = ["replay-dead-letters", "--schema", "x", "--config", config]
    assert "there are: numbers" in commands.run("pipeline", *arguments).error_line()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("folder", "reason"),
    [("pipeline.toml", "file exists"), ("pipeline.toml/below", "not a directory")],
)
def test_a_warehouse_that_cannot_be_is_one_line(
    commands: Commands, tmp_path: Path, folder: str, reason: str
) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(f'{CONFIG}[warehouse]\nfolder = "{folder}"\n')
    with WrittenLog(tmp_path / "data") as log:
        log.put(message("a/b", b"{}", 0))
    line = commands.run("pipeline", "run", "--once", "--config", config).error_line()
    place = tmp_path / folder
    assert line == f"cannot keep tables in {place}: {reason}; set warehouse.folder"
    line = commands.run("pipeline", "status", "--config", config).error_line()
    assert line == f"cannot keep tables in {place}: not a directory; set warehouse.folder"


def test_a_source_without_a_log_is_named_by_its_key(commands: Commands, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(CONFIG)
    assert commands.run("pipeline", "run", "--config", config).error_line() == (
        f"{config}: source.path: {tmp_path / 'data'}: there is no such folder; "
        "give a broker's data folder, or source.endpoint"
    )
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.usefixtures("spark")
def test_topics_of_a_running_broker_are_queried_by_flight(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_API_KEY", raising=False)
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    rule = RuleConfig(allow=("publish", "subscribe"), topics=("a/#",))
    reader = PrincipalConfig(name="reader", token="secret", rule=(rule,))  # noqa: S106
    authenticator = Authenticator(Config(principal=(reader,)))
    with LiveBroker(data=tmp_path) as broker:
        verify = authenticator.verify_bearer
        place = serve_tables(broker, tmp_path, anonymous=None, verify=verify)
        with FlightClient(place, token="secret") as client:  # noqa: S106
            client.stage([rows([b"1", b"2"], topic="a/b")], writer="w", epoch=0, partition=0)
            client.publish_epoch("w", 0, [0])
        where = ["--endpoint", place]
        done = commands.run("sql", "select count(*) as n from `a/+`", "--json", *where)
        assert (done.code, done.out) == (0, '{"n":2}\n'), done
        line = commands.run("sql", "select * from `b`", *where).error_line()
        assert "reader" in line
        monkeypatch.setenv("PENSTOCK_TOKEN", "wrong")
        line = commands.run("sql", "select 1", *where).error_line()
        assert line == (
            f"{place} requires valid credentials; set PENSTOCK_TOKEN or PENSTOCK_API_KEY"
        )
    authenticator.close()
    assert "no answer" in commands.run("sql", "select 1", "--endpoint", "127.0.0.1:1").error_line()
    line = commands.run("sql", "select 1", "--endpoint", "nowhere").error_line()
    assert line.startswith("--endpoint: 'nowhere' is no address; host:port, grpc://host:port")
    line = commands.run("sql", "select 1", "--ca", "x.pem").error_line()
    assert "is for --endpoint" in line


@pytest.mark.usefixtures("spark")
def test_what_is_no_query_is_not_run(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = commands.run("sql", "create table foo as select 1").error_line()
    assert line == (
        "sql: 'create table foo as select 1' changes something and was not run; "
        "give a query: SELECT, WITH, VALUES, TABLE, DESCRIBE, SHOW or EXPLAIN"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "drop table if exists x",
        "set spark.sql.ansi.enabled = false",
        "create temporary view v as select 1",
        "insert into x select 1",
        "with a as (select 1) insert into x select * from a",
        "from x insert into y select * insert into z select *",
        "insert overwrite directory '/nowhere' using parquet select 1",
        "execute immediate 'drop table x'",
        "/* select */ use other",
        "cache table x as select 1",
    ],
)
def test_no_way_to_change_something_is_open(spark: SparkSession, statement: str) -> None:
    with pytest.raises(NotAQuery):
        run_query(spark, statement, tables={}, source={})


@pytest.mark.parametrize(
    "statement",
    [
        "select 1",
        "(select 1) union (select 2)",
        "with a as (select 1) select * from a",
        "values (1), (2)",
        "from values (1) select *",
        "show functions",
        "describe function abs",
        "describe query select 1",
        "explain select 1",
    ],
)
def test_whatever_asks_is_run(spark: SparkSession, statement: str) -> None:
    assert run_query(spark, statement, tables={}, source={}).limit(1).count() == 1


@pytest.mark.usefixtures("spark")
def test_a_pattern_that_fits_no_topic_is_told_the_rule(commands: Commands) -> None:
    assert commands.run("sql", "select * from `a/#/b`").error_line() == (
        "no topic can be meant by 'a/#/b': levels are + or * for any one, "
        "# or > at the end for the rest"
    )


def test_every_problem_of_a_configuration_is_one_line(commands: Commands, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(CONFIG + 'format = "txt"\nkinds = ["publish", "x"]\n')
    for arguments in (["pipeline", "status"], ["pipeline", "run"], ["sql", "select 1"]):
        done = commands.run(*arguments, "--config", config)
        assert (done.code, done.out) == (2, "")
        formats = '"avro", "csv", "json", "messagepack", "protobuf" or "text"'
        kinds = '"broadcast", "notify", "publish", "reply" or "request"'
        assert done.err.splitlines() == [
            f'penstock: {config}:10: silver[0].format: expected {formats}, got "txt"',
            f'penstock: {config}:11: silver[0].kinds[1]: expected {kinds}, got "x"',
        ]
