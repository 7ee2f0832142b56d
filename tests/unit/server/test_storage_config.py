"""`[storage]`: where the log is."""

import re
from pathlib import Path

import pytest

from penstock.cli.config.settings import settings
from penstock.errors import InvalidConfig
from penstock.server.config_loading import load
from penstock.storage.options import TopicRetention

SECRET = "hunter2"  # noqa: S105
KAFKA = f"""
[storage]
kind = "kafka"
bootstrap = "a:9092,b:9092"
topic = "events"
node = 3
commit_seconds_max = 4.0
deliver = "committed"

[storage.kafka]
"security.protocol" = "SASL_SSL"
"sasl.password" = "{SECRET}"
"ssl.ca.location" = "certificates/ca.pem"

[log]
age_seconds_max = 60.0
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "penstock.toml"
    file.write_text(text)
    return file


def test_a_log_is_on_the_disk_unless_kafka_is_named() -> None:
    config = load()
    assert config.storage.kind == "arrow"
    assert config.kafka_options is None


def test_a_file_describes_the_log_on_kafka(tmp_path: Path) -> None:
    config = load(written(tmp_path, KAFKA))
    options = config.kafka_options
    assert config.broker_settings.deliver_committed
    assert options is not None
    assert (options.bootstrap, options.topic, options.node) == ("a:9092,b:9092", "events", 3)
    assert options.commit_seconds_max == 4.0
    assert options.deliver_committed
    assert options.log.retention.age_seconds_max == 60.0
    assert options.settings["security.protocol"] == "SASL_SSL"
    assert options.settings["ssl.ca.location"] == str(tmp_path / "certificates/ca.pem")
    assert (options.state_topic, options.transactional_id) == ("events-state", "events-3")


def test_namespaces_are_no_settings_of_librdkafka(tmp_path: Path) -> None:
    more = KAFKA + '[storage.kafka.namespaces]\n"a/#" = "events-a"\n"b" = "events-b"\n'
    file = written(tmp_path, more)
    options = load(file).kafka_options
    assert options is not None
    assert options.namespaces == {"a/#": "events-a", "b": "events-b"}
    assert "namespaces" not in options.settings
    shown = {each.key: each.value for each in settings(file, {})}
    assert shown["storage.kafka"]["namespaces"] == options.namespaces


def test_the_page_shows_namespaces(tmp_path: Path) -> None:
    page = Path("docs/kafka.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    options = load(written(tmp_path, KAFKA + block)).kafka_options
    assert options is not None
    assert options.namespaces == {
        "plant-a/#": "penstock-plant-a",
        "plant-b/#": "penstock-plant-b",
    }


def test_a_url_describes_it_too_and_overrides_the_file(tmp_path: Path) -> None:
    options = load(storage="kafka://h:1,i:2/penstock?node=7").kafka_options
    assert options is not None
    assert options.location == "kafka://h:1,i:2/penstock?node=7"
    short = load(written(tmp_path, KAFKA), storage="kafka://h:1").kafka_options
    assert short is not None
    assert (short.bootstrap, short.topic, short.node) == ("h:1", "events", 3)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:1/penstock",
        "kafka:///penstock",
        "kafka://h:1/a/b",
        "kafka://h:1/penstock?node=x",
        "kafka://h:1/penstock?node=4096",
        "kafka://h:1/penstock?nodes=1",
        "kafka://user:word@h:1/penstock",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="--storage"):
        load(storage=url)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[storage]\nkind = "kafka"', "storage.bootstrap: missing"),
        ('[storage]\nbootstrap = "h:1"', "storage.bootstrap: it is for"),
        (
            '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n[storage.kafka]\n"acks" = "1"',
            "storage.kafka.acks: Penstock sets it itself",
        ),
        (
            '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n[storage.kafka]\nsasl.username = "a"',
            "storage.kafka.sasl: expected a string",
        ),
        (
            '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n[storage.kafka]\nnamespaces = "a"',
            "storage.kafka.namespaces: expected a table",
        ),
        (
            (
                '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n'
                '[storage.kafka.namespaces]\n"#/a" = "x"'
            ),
            "storage.kafka.namespaces: ",
        ),
        (
            (
                '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n'
                '[storage.kafka.namespaces]\n"a/#" = "a b"'
            ),
            "storage.kafka.namespaces.a/#: expected a name of a Kafka topic",
        ),
        (
            (
                '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n'
                '[storage.kafka.namespaces]\n"a/#" = "penstock-state"'
            ),
            'storage.kafka.namespaces.a/#: "penstock-state" is a Kafka topic of the log itself',
        ),
        (
            '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n[broker]\ndurability = "memory"',
            "storage.kind: there is no log",
        ),
        (
            '[storage]\nkind = "kafka"\nbootstrap = "h:1"\n[[retention]]\ntopics = ["a"]\nlast_only = true',
            r"retention\[0\]: Kafka has one retention",
        ),
        (
            '[broker]\ndurability = "memory"\n[[retention]]\ntopics = ["a"]\nbytes_max = 1',
            r"retention\[0\]: there is no log",
        ),
        ('[[retention]]\ntopics = ["a"]', r"retention\[0\]: expected age_seconds_max"),
        (
            '[[retention]]\ntopics = ["a"]\nlast_only = true\nbytes_max = 1',
            r"retention\[0\]: expected last_only alone",
        ),
        (
            '[[retention]]\ntopics = ["#/a"]\nlast_only = true',
            r"retention\[0\].topics",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        load(written(tmp_path, text))


def test_topics_may_have_their_own_retention(tmp_path: Path) -> None:
    text = """
        [[retention]]
        topics = ["a/#", "b"]
        age_seconds_max = 60.0
        bytes_max = 1000

        [[retention]]
        topics = ["state/#"]
        last_only = true
    """
    options = load(written(tmp_path, text)).log_options
    assert options is not None
    assert options.retention.rules == (
        TopicRetention(("a/#", "b"), age_seconds_max=60.0, bytes_max=1000),
        TopicRetention(("state/#",), last_only=True),
    )


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    file = written(tmp_path, KAFKA)
    shown = {each.key: each.value for each in settings(file, {})}
    assert set(shown["storage.kafka"]) == {
        "security.protocol",
        "sasl.password",
        "ssl.ca.location",
    }
    assert SECRET not in str(shown)
    wrong = KAFKA.replace(f'"{SECRET}"', f'["{SECRET}"]')
    with pytest.raises(InvalidConfig) as caught:
        load(written(tmp_path, wrong))
    assert SECRET not in str(caught.value)
