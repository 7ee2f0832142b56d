"""The pipeline on a log on Kafka, which two nodes write: `source = "kafka://…"`."""

import json
import secrets
from pathlib import Path

import pytest

from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, WrittenStorage, message
from tools.kafka import KafkaBroker

CONFIG = """
source = "{source}"
[[silver]]
name = "numbers"
topics = ["a/#"]
field = [{{ name = "number", type = "int", required = true }}]
"""


@pytest.mark.usefixtures("spark")
def test_the_pipeline_stores_each_message_of_all_nodes_once(
    commands: Commands, tmp_path: Path, kafka: KafkaBroker
) -> None:
    topic = f"pipeline-{secrets.token_hex(4)}"
    source = f"kafka://{kafka.address}/{topic}"
    (tmp_path / "pipeline.toml").write_text(CONFIG.format(source=source))
    config = ["--config", str(tmp_path / "pipeline.toml")]

    def run(*arguments: str) -> str:
        done = commands.run(*arguments, *config)
        assert done.code == 0, done
        return done.out

    def rows() -> dict[str, int]:
        status = json.loads(run("pipeline", "status", "--json"))
        return {name: table["rows"] for name, table in status["tables"].items()}

    with WrittenLog(tmp_path / "moved") as log:  # node 0 goes on with the log of a folder
        log.put(*(message("a/b", b'{"number": %d}' % each, each) for each in range(500, 510)))
    assert commands.run("log", "export", "--data", log.data, "--to", source).code == 0
    nodes = [
        WrittenStorage(KafkaLog(KafkaOptions(kafka.address, topic, number))) for number in (0, 1)
    ]
    try:
        for number, node in enumerate(nodes):
            values = [b'{"number": %d}' % (100 * number + each) for each in range(30)]
            node.put(*(message("a/b", value, each) for each, value in enumerate(values)))
            node.put(message("a/b", b"broken", 30))
        run("pipeline", "run", "--once")
        counts = rows()
        assert (counts["bronze"], counts["numbers"], counts["dead_letters"]) == (72, 70, 2)
        nodes[1].put(message("a/c", b'{"number": 7}', 31))
        run("pipeline", "run", "--once")
        assert rows()["numbers"] == 71
    finally:
        for node in nodes:
            node.close()
    query = "select partition, count(*) as n, count(distinct message_id) as ids from bronze"
    found = run("sql", f"{query} group by partition order by partition", "--json").splitlines()
    assert [json.loads(line) for line in found] == [
        {"partition": 0, "n": 41, "ids": 41},
        {"partition": 1, "n": 32, "ids": 32},
    ]
    assert json.loads(run("sql", "select count(*) as n from `a/c`", "--json")) == {"n": 1}
