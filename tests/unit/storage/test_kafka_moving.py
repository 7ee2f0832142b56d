"""A log that is moved to Kafka and back is the same: offsets, ids, times, senders, topics."""

import json
import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import CannotExport
from penstock.ports import GroupProgress, PendingRun, Subscription
from penstock.ports.places import place_of
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import record_batches
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.kafka import moving
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.moved_groups import copy_groups
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.session_numbers import SessionNumbers
from tests.support.commands import Commands
from tests.support.written_log import WrittenLog, WrittenStorage, flip, message
from tools.kafka import KafkaBroker


def rows(data: Path) -> list[dict[str, Any]]:
    return [row for batch in record_batches(LogView(data)) for row in batch.to_pylist()]


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    return KafkaOptions(kafka.address, f"moved-{secrets.token_hex(4)}")


def test_a_log_is_the_same_after_a_move_to_kafka_and_back(
    options: KafkaOptions, commands: Commands, tmp_path: Path
) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    with WrittenLog(here, segment_bytes_max=8192) as log:
        log.put_many(30)
        log.log.add_topic("empty", b"c" * 16)
        log.put(message("c", b"with a sender", 90, sender_name="pump"))
        assert len(log.segments()) > 2
    GroupOffsets(here).commit("readers", {0: 17})
    SessionNumbers(log.folder).save(4711)
    url = f"kafka://{options.bootstrap}/{options.topic}"
    done = commands.run("log", "export", "--data", here, "--to", url, "--json")
    assert done.code == 0, done
    told = json.loads(done.out)
    assert (told["messages"], told["start"], told["end"], told["topics"]) == (91, 0, 91, 1)
    line = commands.run("log", "export", "--data", here, "--to", url).error_line()
    assert "partition 0 has messages already" in line

    with WrittenStorage(KafkaLog(options)) as node:  # a node goes on where the folder ended
        assert node.log.next_offset == 91
        assert [each[:2] for each in node.log.known_topics] == [("empty", b"c" * 16)]
        node.put(message("a", b"by the node", 91))
        assert node.log.groups.all()["readers"].offsets == {0: 17}

    done = commands.run("log", "import", "--from", url, "--data", back)
    assert done.code == 0, done
    assert done.out == f"{back}: 92 messages in partition 0, offsets 0 to 92.\n"
    found = rows(back)
    assert found[:91] == rows(here)
    assert found[91]["value"] == b"by the node"
    assert commands.run("log", "verify", "--data", back).code == 0
    assert GroupOffsets(back).all()["readers"].offsets == {0: 17}
    assert SessionNumbers(partition_folder(back, 0)).load() == 4711
    with WrittenLog(back) as log:  # a broker goes on with the folder
        assert log.log.next_offset == 92
        assert "empty" in {each.name for each in log.log.known_topics}
        log.put(message("a", b"by a broker", 92))
    assert [row["offset"] for row in rows(back)] == list(range(93))
    line = commands.run("log", "import", "--from", url, "--data", back).error_line()
    assert "it has log/0 already" in line


def test_a_log_is_not_exported_to_a_partition_in_which_a_node_still_writes(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(3)

    class LateWriter(moving._Writer):
        def __init__(self, *arguments: Any) -> None:
            with WrittenStorage(KafkaLog(options)) as node:
                node.put(message("a", b"of the node", 0))
            super().__init__(*arguments)

    monkeypatch.setattr(moving, "_Writer", LateWriter)
    with pytest.raises(CannotExport, match="has messages already"):
        moving.export_log(tmp_path, options, damaged=print, progress=print)
    with WrittenStorage(KafkaLog(options)) as node:
        assert node.log.next_offset == 1


WHOLE = GroupProgress(
    next=40,
    pending=(PendingRun(17, 1, 2), PendingRun(20, 3, 1)),
    dead=(11, 13),
    ordered=True,
)
"""A group with acknowledgments out of order, deliveries and dead letters."""


def test_the_whole_ledger_of_a_group_is_moved(
    options: KafkaOptions, commands: Commands, tmp_path: Path
) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    with WrittenLog(here) as log:
        log.put_many(50)
    used = msgspec.structs.replace(WHOLE, used=True, node=0, process="p")
    subscription = Subscription(patterns=("#",))
    kept = GroupOffsets(here)
    kept.commit("g", {0: 17}, lost=5, subscription=subscription, progress=used)
    url = f"kafka://{options.bootstrap}/{options.topic}"
    assert commands.run("log", "export", "--data", here, "--to", url).code == 0
    with WrittenStorage(KafkaLog(options)) as node:
        found = node.log.groups.load("g")
        assert found is not None
        assert found.progress == WHOLE
        assert (found.offsets, found.lost, found.subscription) == ({0: 17}, 5, subscription)
        # In a cluster the state has the other partitions, too.
        beside = place_of(1, 4)
        several = msgspec.structs.replace(
            WHOLE,
            partitions={0: 40, 1: 7},
            pending=(*WHOLE.pending, PendingRun(beside, 1, 1)),
            dead=(*WHOLE.dead, beside),
        )
        node.log.groups.commit("g", {0: 17, 1: 4}, subscription=subscription, progress=several)
        node.log.groups.commit("elsewhere", {1: 4})
    assert commands.run("log", "import", "--from", url, "--data", back).code == 0
    assert list(GroupOffsets(back).all()) == ["g"]
    again = GroupOffsets(back).load("g")
    assert again is not None
    assert (again.offsets, again.progress) == ({0: 17}, WHOLE)


def test_partitions_of_a_group_are_moved_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    target = GroupOffsets(tmp_path / "target")
    beside = place_of(1, 4)
    several = msgspec.structs.replace(
        WHOLE,
        partitions={0: 40, 1: 7},
        pending=(*WHOLE.pending, PendingRun(beside, 1, 1)),
        dead=(*WHOLE.dead, beside),
    )
    source = GroupOffsets(tmp_path)
    source.commit("g", {0: 17, 1: 4}, lost=2, progress=several, owner="plant")
    for partition in (1, 0, 1):
        copy_groups(source, target, partition=partition)
    found = target.load("g")
    assert found is not None
    assert found.progress is not None
    assert (found.offsets, found.lost, found.owner) == ({0: 17, 1: 4}, 2, "plant")
    assert sorted(found.progress.dead) == [11, 13, beside]
    assert msgspec.structs.replace(found.progress, dead=several.dead) == several


def test_messages_that_cannot_be_read_are_told_and_left_out(
    options: KafkaOptions, commands: Commands, tmp_path: Path
) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    with WrittenLog(here) as log:
        log.put_many(3)
        place = list(LogView(here).catalog.places(0, 9))[1]
    flip(place.path, place.entry.position + place.entry.size - 200)
    url = f"kafka://{options.bootstrap}/{options.topic}"
    done = commands.run("log", "export", "--data", here, "--to", url, "--json")
    assert done.code == 1, done
    assert "messages 3 to 5 cannot be read" in done.err
    assert json.loads(done.out)["messages"] == 6
    done = commands.run("log", "import", "--from", url, "--data", back, "--json")
    assert (done.code, json.loads(done.out)["messages"]) == (0, 6), done
    assert [row["offset"] for row in rows(back)] == [0, 1, 2, 6, 7, 8]


def test_what_cannot_be_moved_is_one_line(commands: Commands, tmp_path: Path) -> None:
    with WrittenLog(tmp_path) as log:
        log.put_many(1)
    given = ["log", "export", "--data", tmp_path, "--to"]
    assert "kafka://host:port/topic" in commands.run(*given, "kafka://h").error_line()
    line = commands.run("log", "export", "a.parquet", "--to", "kafka://h:1").error_line()
    assert "the whole log is copied" in line
    assert "give a file, or --to kafka://" in commands.run("log", "export").error_line()
    for setting in ("hush", "acks=1"):
        line = commands.run(*given, "kafka://h:1", "--kafka", setting).error_line()
        assert "hush" not in line
        assert "--kafka" in line
    line = commands.run("log", "import", "--from", "b", "--data", tmp_path).error_line()
    assert "it is not of the form kafka://host:port/topic" in line
    given = ["log", "import", "--data", tmp_path / "new", "--from", "ftp://b"]
    assert "cannot read the log ftp://b" in commands.run(*given).error_line()
    assert "is for --from kafka://" in commands.run(*given, "--kafka", "a=b").error_line()
