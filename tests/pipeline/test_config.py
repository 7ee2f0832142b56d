"""What `pipeline.toml` may say; an error names the key."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.pipeline.config_loading import load

SILVER = """
[[silver]]
name = "temps"
topics = ["sensors/+/temp"]
field = [{ name = "celsius", type = "double" }]
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


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("[warehouse]\nfolde = 'x'", "warehouse.folde", 'did you mean "folder"?'),
        ("[warehouse]\nformat = 'delta'", "warehouse.format", "removed, all tables are Delta"),
        ("[warehouse]\nformat = 'parquet'", "warehouse.format", "a new warehouse.folder"),
        (SILVER + "format = 'xml'", "silver[0].format", '"xml" is none of json, messagepack'),
        ("[gold]\nseconds = 'often'", "gold.seconds", "float"),
        ("[warehouse]\nvacuum_hours = 0", "warehouse.vacuum_hours", ">= 1"),
        ("sliver = 3", "sliver", 'did you mean "silver"?'),
        (SILVER.replace("temps", "Temps!"), "silver[0].name", "regex"),
        (SILVER.replace('name = "temps"', ""), "silver[0].name", "missing"),
        (SILVER.replace("sensors/+/temp", "#/x"), "silver[0].topics", "matches no topic"),
        (SILVER.replace("double", "number"), "silver[0].field[0].type", "decimal"),
        (SILVER.replace("celsius", "offset"), "silver[0].field[0].name", "choose another"),
        (SILVER + 'dedup = ["celsius"]', "silver[0].dedup", "watermark_seconds"),
        (SILVER + 'dedup = ["kelvin"]', "silver[0].dedup", "no column"),
        (SILVER + 'event_time = "celsius"', "silver[0].event_time", "timestamp"),
        (SILVER + 'format = "text"\npattern = "(a)(b)"', "silver[0].pattern", "2 groups"),
        (SILVER + 'pattern = "(a)"', "silver[0].pattern", "text"),
        (SILVER + SILVER, "silver[1].name", "another"),
        (SILVER.replace("temps", "traffic"), "silver[0].name", "pipeline"),
        ("[source]\npath = 'a'\nendpoint = 'grpc://b:1'", "source.endpoint", "not both"),
        ("[[publish]]\ntable = 'traffic'\ntopic = 'x'", "publish", "source.endpoint"),
        ("[source]\npath = 'a'\ncertificate = 'c'", "source.certificate", "source.endpoint"),
        (
            PUBLISH_TWICE,
            "publish[1].table",
            "another topic",
        ),
        ("x = [", "", "expected TOML"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(
    tmp_path: Path, text: str, key: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.key == key
    assert problem in caught.value.problem
    assert caught.value.source == str(tmp_path / "pipeline.toml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.toml: cannot be read: .*--config"):
        load(tmp_path / "nothing.toml")


@pytest.mark.parametrize("pattern", ["(?<=a)(\\d+)", "(?<!a)(\\d+)", "(?<digits>\\d+)"])
def test_a_pattern_may_look_behind_and_name_its_group(tmp_path: Path, pattern: str) -> None:
    assert loaded(tmp_path, SILVER + f"format = \"text\"\npattern = '{pattern}'")
