"""The client library of Kafka is an extra: only a log on Kafka needs it."""

import os
import sys
from pathlib import Path

import pytest

from penstock.client.sync import connect_sync
from penstock.protocols.rheos2 import RHEOS2
from tests.support.running import Running, run
from tests.support.served import free_port

MISSING = "raise ModuleNotFoundError('confluent_kafka')"
FATAL = "raise SystemExit('confluent_kafka was imported')"
INSTALL = "confluent-kafka is not installed; install penstock-broker[kafka]"
URL = "kafka://127.0.0.1:1/penstock"


def library(folder: Path, text: str) -> dict[str, str]:
    """An environment in which the import of confluent_kafka runs `text`."""
    (folder / "confluent_kafka.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("serve", "--storage", URL), "cannot keep messages on Kafka at 127.0.0.1:1"),
        (("log", "import", "--from", URL), f"cannot read the log {URL}"),
    ],
    ids=["serve", "import"],
)
def test_without_the_library_a_log_on_kafka_says_which_extra_to_install(
    tmp_path: Path, command: tuple[str, ...], error: str
) -> None:
    data = tmp_path / "data"
    ended = run(*command, "--data", data, **library(tmp_path, MISSING))
    assert ended.code == 2
    (line,) = (each for each in ended.err.splitlines() if "event=starting" not in each)
    assert line == f"penstock: {error}: {INSTALL}"
    assert not data.exists()


def test_a_log_on_disk_never_imports_the_library_of_kafka(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    listen = ("--listen", address, "--http", "127.0.0.1:0", "--flight", "127.0.0.1:0")
    with Running(
        "serve", *listen, "--data", tmp_path / "data", **library(tmp_path, FATAL)
    ) as process:
        assert any(line == "Ready." for line in iter(process.line, ""))
        with connect_sync(address, protocol=RHEOS2, timeout=10) as client:
            client.publish("channel/1", b"value")
            stream = client.subscribe("channel/1@earliest", timeout=10)
            assert next(stream).value == b"value"
        code, errors = process.end()
    assert code == 0
    assert "confluent_kafka" not in errors
