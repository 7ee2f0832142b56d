"""What `pipeline.toml` may say; an error names the key."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError, InvalidConfig
from penstock.pipeline.config_loading import load

SILVER = """
[[silver]]
name = "temps"
topics = ["sensors/+/temp"]
field = [{ name = "celsius", type = "double" }]
"""

MANY = """
[warehouse]
format = "delta"
compact_files_min = 1
[gold]
second = 3
enabled = "no"
[spark.conf]
a = 1
[[silver]]
name = "temps"
topics = ["a"]
dedup = ["b", "c"]
format = "csv"
field = [
    { name = "a" },
    { name = "a" },
    { name = "d", array = true, path = "x" },
]
"""

PUBLISH_TWICE = """
publish = [{ table = "traffic", topic = "x" }, { table = "traffic", topic = "y" }]
[source]
endpoint = "grpc://b:1"
"""


def loaded(folder: Path, text: str) -> object:
    file = folder / "pipeline.toml"
    file.write_text(text)
    return load(file, environment={"PENSTOCK_TOKEN": "secret"})


def test_paths_are_relative_to_the_file_and_the_token_may_come_from_the_environment(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(f'[source]\npath = "data"\n[gold]\nsql = "queries"\n{SILVER}')
    config = load(file, environment={"PENSTOCK_TOKEN": "secret"})
    assert config.source.path == str(tmp_path / "data")
    assert config.warehouse.folder == str(tmp_path / "warehouse")
    assert config.gold.sql == str(tmp_path / "queries")
    (field,) = config.silver[0].field
    assert (field.required, field.array, field.path) == (False, False, "")
    assert config.source.token == "secret"  # noqa: S105
    assert config.silver[0].dedup == ("message_id",)
    assert config.source.options == {"path": str(tmp_path / "data")}


def test_the_broker_is_found_by_address_token_and_certificate(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[source]\nendpoint = "grpc+tls://b:1"\ncertificate = "broker.pem"\n')
    assert load(file, environment={"PENSTOCK_TOKEN": "secret"}).source.options == {
        "endpoint": "grpc+tls://b:1",
        "token": "secret",
        "certificate": str(tmp_path / "broker.pem"),
    }
    assert load(file, environment={}).source.options.keys() == {"endpoint", "certificate"}


def test_a_log_on_kafka_is_found_by_its_url_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('source = "kafka://a:9092,b:9092/plant"\n')
    config = load(file, environment={})
    assert config.source.options == {"path": "kafka://a:9092,b:9092/plant"}
    file.write_text(
        '[source]\nurl = "kafka://a:9092"\nendpoint = "grpc://b:1"\n[source.kafka]\n'
        '"security.protocol" = "SSL"\n"ssl.ca.location" = "ca.pem"\n'
    )
    source = load(file, environment={}).source
    assert source.options == {
        "path": "kafka://a:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert source.sink_options == {"endpoint": "grpc://b:1"}, "rows are published by a node"


@pytest.mark.parametrize(
    ("text", "key", "problem", "line"),
    [
        ("[warehouse]\nfolde = 'x'", "warehouse.folde", 'did you mean "folder"?', 2),
        ("[warehouse]\nformat = 'delta'", "warehouse.format", "removed, all tables are Delta", 2),
        ("[warehouse]\nformat = 'parquet'", "warehouse.format", "a new warehouse.folder", 2),
        (
            "[warehouse]\nfolder = 'hdfs://lake/tables'",
            "warehouse.folder",
            "expected a URL that begins with one of s3://, gs://, abfss://, file://",
            2,
        ),
        (
            "[warehouse]\nfolder = 's3://lake'\nstate_folder = 's3://state'",
            "warehouse.state_folder",
            "expected a path of this machine; s3:// is not supported",
            3,
        ),
        ("[source]\npath = 'abfss://x@y/z'", "source.path", "abfss:// is not supported", 2),
        (SILVER + "format = 'xml'", "silver[0].format", '"protobuf" or "text", got "xml"', 6),
        (
            "[gold]\nseconds = 'often'",
            "gold.seconds",
            'a number above 0 and up to 31536000, got "often"',
            2,
        ),
        (
            "[warehouse]\nvacuum_hours = 0",
            "warehouse.vacuum_hours",
            "a whole number of at least 1, got 0",
            2,
        ),
        ("sliver = 3", "sliver", 'did you mean "silver"?', 1),
        (
            SILVER.replace("temps", "Temps!"),
            "silver[0].name",
            'up to 63 of a-z, 0-9 and _, a letter first, got "Temps!"',
            3,
        ),
        (
            SILVER.replace('name = "temps"', ""),
            "silver[0].name",
            "missing; expected up to 63 of a-z",
            2,
        ),
        (SILVER.replace("sensors/+/temp", "#/x"), "silver[0].topics", "matches no topic", 4),
        (SILVER.replace("double", "number"), "silver[0].field[0].type", "decimal", 5),
        (SILVER.replace("celsius", "offset"), "silver[0].field[0].name", "choose another", 5),
        *(
            (
                SILVER.replace('type = "double"', f'path = "{path}"'),
                "silver[0].field[0].path",
                "expected names separated by dots, without quotes",
                5,
            )
            for path in (".", "a.", ".a", "a..b", "it's")
        ),
        (SILVER + 'dedup = ["celsius"]', "silver[0].dedup", "watermark_seconds", 6),
        (SILVER + 'dedup = ["kelvin"]', "silver[0].dedup", "no column", 6),
        (SILVER + 'event_time = "celsius"', "silver[0].event_time", "timestamp", 6),
        (SILVER + 'format = "text"\npattern = "(a)(b)"', "silver[0].pattern", "2 groups", 7),
        (SILVER + 'pattern = "(a)"', "silver[0].pattern", "text", 6),
        (SILVER + SILVER, "silver[1].name", "another", 8),
        (SILVER.replace("temps", "traffic"), "silver[0].name", "pipeline", 3),
        ("[source]\npath = 'a'\nendpoint = 'grpc://b:1'", "source.endpoint", "not both", 3),
        ("[[publish]]\ntable = 'traffic'\ntopic = 'x'", "publish", "source.endpoint", 1),
        ("[source]\npath = 'a'\nurl = 'kafka://b:1'", "source.url", "not both", 3),
        ("source = 's3://b/c'", "source.url", "the form kafka://host:port/topic", 1),
        ("[source]\nkafka = { debug = 'all' }", "source.kafka", "needs source.url", 2),
        ("[source]\npath = 'a'\ncertificate = 'c'", "source.certificate", "source.endpoint", 3),
        (
            PUBLISH_TWICE,
            "publish[1].table",
            "another topic",
            2,
        ),
        ("x = [", "", "expected TOML", None),
    ],
)
def test_what_is_wrong_is_named_by_its_key(
    tmp_path: Path, text: str, key: str, problem: str, line: int | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.key == key
    assert problem in caught.value.problem
    file = tmp_path / "pipeline.toml"
    assert caught.value.source == (f"{file}:{line}" if line else str(file))


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        loaded(tmp_path, MANY)
    file = tmp_path / "pipeline.toml"
    assert list(map(str, caught.value.problems)) == [
        f"{file}:3: warehouse.format: was removed, all tables are Delta tables; delete this key",
        f"{file}:4: warehouse.compact_files_min: expected a whole number of at least 2, got 1",
        f'{file}:6: gold.second: unknown key; did you mean "seconds"?',
        f'{file}:7: gold.enabled: expected true or false, got "no"',
        f"{file}:9: spark.conf.a: expected a string, got a number",
        f'{file}:17: silver[0].field[1].name: another field is named "a"',
        f'{file}:18: silver[0].field[2].array: cannot be used with format = "csv"',
        f'{file}:18: silver[0].field[2].path: cannot be used with format = "csv"',
        f'{file}:13: silver[0].dedup: there is no column "b"',
        f'{file}:13: silver[0].dedup: there is no column "c"',
    ]


def test_a_check_is_skipped_if_a_table_that_it_reads_has_a_problem(tmp_path: Path) -> None:
    text = '[source]\nendpoint = 1\n[[publish]]\ntable = "traffic"\ntopic = "x/#"\n'
    with pytest.raises(InvalidConfig) as caught:
        loaded(tmp_path, text)
    assert [each.key for each in caught.value.problems] == ["source.endpoint"]


def test_an_error_does_not_repeat_a_token(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        loaded(tmp_path, '[source]\ntoken = ["hunter2"]\n[spark.conf]\nkey = ["hunter2"]\n')
    assert len(caught.value.problems) == 2
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "a", "values.temp", "a b.c-d.é"])
def test_the_path_of_a_field_has_dots_between_names(tmp_path: Path, path: str) -> None:
    assert loaded(tmp_path, SILVER.replace('type = "double"', f'path = "{path}"'))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.toml: cannot be read: .*--config"):
        load(tmp_path / "nothing.toml")


@pytest.mark.parametrize("pattern", ["(?<=a)(\\d+)", "(?<!a)(\\d+)", "(?<digits>\\d+)"])
def test_a_pattern_may_look_behind_and_name_its_group(tmp_path: Path, pattern: str) -> None:
    assert loaded(tmp_path, SILVER + f"format = \"text\"\npattern = '{pattern}'")


@pytest.mark.parametrize(
    ("kind", "valid"),
    [
        ("decimal(10,2)", True),
        ("decimal(38, 38)", True),
        ("decimal(39,2)", False),
        ("decimal(2,3)", False),
        ("decimal(10)", False),
    ],
)
def test_a_decimal_has_up_to_38_digits_and_no_more_behind_the_point(
    tmp_path: Path,
    kind: str,
    valid: bool,  # noqa: FBT001
) -> None:
    text = f'[source]\npath = "data"\n{SILVER.replace("double", kind)}'
    if valid:
        loaded(tmp_path, text)
    else:
        with pytest.raises(InvalidConfig, match="decimal"):
            loaded(tmp_path, text)


@pytest.mark.parametrize(("kind", "older"), [("delta", False), ("parquet", True)])
def test_the_format_of_a_warehouse_was_removed(
    tmp_path: Path,
    kind: str,
    older: bool,  # noqa: FBT001
) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f'[warehouse]\nformat = "{kind}"')
    assert "delete this key" in str(raised.value)
    assert ("older tables cannot be continued" in str(raised.value)) == older
