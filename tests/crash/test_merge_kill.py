"""kill -9 while small row groups are merged: every acknowledged message is there, none twice."""

import random
from pathlib import Path

from penstock.storage.arrow.format.file_names import SEGMENT
from penstock.storage.arrow.recover.verify import Verified, verify
from penstock.storage.files import TEMPORARY, Files
from tests.crash.loads import Rheos2Publisher, check_kept, marks, replayed, rows_of
from tests.crash.test_kill import SECONDS, SMALL_SEGMENTS, BrokerProcess

KILLS = max(3, int(SECONDS / 5))


def publish_one(publisher: Rheos2Publisher) -> None:
    """Publish a message that has a row group of its own."""
    publisher.publish(1)
    publisher.settle()


def is_merging(folder: Path) -> bool:
    return any(folder.glob(f"*{SEGMENT}{TEMPORARY}"))


def test_what_was_acknowledged_survives_a_kill_while_row_groups_are_merged(tmp_path: Path) -> None:
    publisher = Rheos2Publisher("single", value_size=20)
    chance = random.Random(1)
    folder = tmp_path / "data" / "log" / "0"
    for number in range(KILLS):
        with BrokerProcess(tmp_path, log=SMALL_SEGMENTS) as broker:
            publisher.connect(broker.ready())
            while not (is_merging(folder) if number % 2 else "row groups merged" in broker.output):
                publish_one(publisher)
            for _ in range(chance.randrange(200)):
                publish_one(publisher)
            broker.kill()
            publisher.disconnect()
            assert "Traceback" not in broker.output, broker.output[:3000]
            assert "cannot be read" not in broker.output, broker.output
    with BrokerProcess(tmp_path, log=SMALL_SEGMENTS) as reader:
        address = reader.ready()
        rows = rows_of(tmp_path / "data")
        count = check_kept(rows, [publisher], from_start=True)
        assert replayed(address, count) == marks(rows)
        reader.stop()
    (found,) = verify(Files(), folder)
    assert isinstance(found, Verified)
    assert found.messages == count
