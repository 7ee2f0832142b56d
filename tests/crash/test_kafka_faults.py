"""Faults of nodes and Kafka brokers, counted: what was acknowledged is in Kafka, once, in order.

A subscriber is connected to other nodes, and resumes on the next one after each fault. It gets what
is in Kafka: nothing is missing, and nothing comes twice. `make crash-kafka FAULTS=200` runs it with
three brokers.
"""

import os
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.ports import PartitionRange
from penstock.ports.selection import Selection
from penstock.storage.kafka.log_reader import KafkaLogReader
from penstock.storage.kafka.options import KafkaOptions
from tests.crash.kafka_campaign import (
    KAFKA_SETTINGS,
    NAME,
    STOP_SECONDS,
    Campaign,
    Publisher,
    mounted_disks,
)
from tools.kafka import KafkaBroker, KafkaMissing, free_ports, start_brokers

FAULTS = int(os.environ.get("PENSTOCK_KAFKA_FAULTS", "0"))
SEED = int(os.environ.get("PENSTOCK_KAFKA_SEED", "1"))
KINDS = (
    "node killed", "broker killed", "both killed", "node stopped", "node replaced", "two at once",
    "zombie", "disk full", "all disks full",
)  # fmt: skip
SECONDS_MAX = float(os.environ.get("PENSTOCK_KAFKA_SECONDS", "inf"))
"""No fault is caused after this time."""
ONLY = tuple(filter(None, os.environ.get("PENSTOCK_KAFKA_KINDS", "").split(",")))
"""Kinds to run instead of all."""
CHECKED = 9
"""After this number of faults, and after the last, all messages are compared."""
ZOMBIE_SECONDS = 30.0
"""How long a node is stopped while another process has its number, every fourth time."""


class Row(NamedTuple):
    """A message in Kafka."""

    value: bytes
    message_id: uuid.UUID
    offset: int


@pytest.mark.skipif(not FAULTS, reason="set PENSTOCK_KAFKA_FAULTS, or make crash-kafka")
def test_what_was_acknowledged_is_in_kafka_once_and_in_order(tmp_path: Path) -> None:
    try:
        with (
            mounted_disks(tmp_path / "kafka", 3) as disks,
            start_brokers(tmp_path / "kafka", free_ports(3), KAFKA_SETTINGS) as brokers,
        ):
            campaign = Campaign(brokers, disks, tmp_path)
            kinds = ONLY or KINDS
            if not disks:
                tell("file systems cannot be mounted here: no faults of full disks")
                kinds = tuple(each for each in kinds if "full" not in each)
            run(campaign, kinds, FAULTS)
    except KafkaMissing as error:
        pytest.skip(f"Apache Kafka: {error}")


def test_a_killed_node_and_one_that_wakes_up_lose_nothing(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """A short pass, with one broker."""
    run(Campaign([kafka], [], tmp_path), ("node killed", "zombie"), 2)


def run(campaign: Campaign, kinds: Sequence[str], faults: int) -> None:
    """Cause faults one after the other, and check everything every CHECKED faults."""
    chance = random.Random(SEED)
    counts: Counter[str] = Counter()
    ends = time.monotonic() + SECONDS_MAX
    try:
        campaign.until_recovered()
        for number in range(1, faults + 1):
            kind = kinds[(number - 1) % len(kinds)]
            is_long = counts[kind] % 4 == 3
            started = time.monotonic()
            campaign.cause(kind, chance, stop_seconds=ZOMBIE_SECONDS if is_long else STOP_SECONDS)
            counts[kind] += 1
            acknowledged = sum(len(each.acknowledged) for each in campaign.publishers.values())
            seconds = time.monotonic() - started
            tell(f"fault {number}: {kind}; {seconds:.0f} s; {acknowledged} acknowledged so far")
            is_last = number == faults or time.monotonic() > ends
            if is_last or number % CHECKED == 0:
                campaign.observe(lambda: check_all(campaign))
            else:
                campaign.observe()
            if is_last:
                break
    finally:
        tell(", ".join(f"{count} {kind}" for kind, count in counts.items()))
        campaign.close()


def check_all(campaign: Campaign) -> None:
    """Check all partitions, while nothing is published."""
    rows = stored(campaign)
    for partition, publisher in campaign.publishers.items():
        check(campaign, partition, publisher, rows[partition])


def stored(campaign: Campaign) -> dict[int, list[Row]]:
    """Return what is in Kafka, when the subscriber has got the last message of each partition.

    A message without an acknowledgment may be committed a little later.
    """
    with KafkaLogReader(KafkaOptions(campaign.bootstrap, NAME)) as log:
        while True:
            rows = {partition: read(log, partition) for partition in campaign.publishers}
            campaign.listener.read(*(each[-1].value for each in rows.values() if each))
            ends = {partition: bounds.end for partition, bounds in log.refresh().items()}
            if all(not each or each[-1].offset + 1 == ends[key] for key, each in rows.items()):
                return rows


def read(log: KafkaLogReader, partition: int) -> list[Row]:
    """Return all messages of a partition."""
    span = PartitionRange(partition, *log.refresh()[partition])
    return [
        Row(row["value"], uuid.UUID(row["message_id"]), row["offset"])
        for batch in log.scanner.scan(span, Selection(), ["value", "message_id", "offset"])
        for row in batch.to_pylist()
    ]


def check(campaign: Campaign, partition: int, publisher: Publisher, rows: list[Row]) -> None:
    """Compare what is in Kafka with what was acknowledged, and with what the subscriber got."""
    values = [row.value for row in rows]
    assert len(set(values)) == len(values), "a message is there twice"
    offsets = [row.offset for row in rows]
    assert offsets == sorted(set(offsets))
    found = {(row.value, row.message_id) for row in rows}
    missing = [each for each in publisher.acknowledged if each not in found]
    assert missing == [], f"{len(missing)} of {len(publisher.acknowledged)} acknowledged are lost"
    last: dict[bytes, int] = {}
    for value in values:
        _, connection, number = value.split(b".")
        assert int(number) > last.get(connection, -1), "the order of one connection has changed"
        last[connection] = int(number)
    name = publisher.name.encode() + b"."
    got = [value for value in campaign.listener.values if value.startswith(name)]
    assert got == values, f"the subscriber has other messages: {differences(values, got)}"
    count = len(publisher.acknowledged)
    tell(f"partition {partition}: {publisher.sent} sent, {count} acknowledged, {len(rows)} stored")


def differences(values: list[bytes], got: list[bytes]) -> str:
    """Say which messages the subscriber has missed, and which it got though they are not stored."""
    known, seen = set(values), Counter(got)
    missed = [value for value in values if value not in seen]
    strange = [value for value in got if value not in known]
    twice = [value for value, count in seen.items() if count > 1]
    parts = {"missed": missed, "twice": twice, "not stored": strange}
    return "; ".join(f"{len(each)} {name} {each[:5]}" for name, each in parts.items())


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
