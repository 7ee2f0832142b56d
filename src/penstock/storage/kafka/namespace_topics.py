"""The Kafka topics of namespaces: created like the first topic if they are missing, and checked."""

import contextlib
from collections.abc import Callable, Collection
from typing import Final

import structlog
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from penstock.errors import KafkaUnusable
from penstock.limits import KAFKA_REFERENCE_SECONDS_MAX
from penstock.storage.arrow.format.segment import parse_head
from penstock.storage.kafka.client import Connection, RecordReader, RecordsRemoved
from penstock.storage.kafka.cluster_topics import (
    TopicAdmin,
    TopicFacts,
    TopicMissing,
    check_settings,
    create_topics,
)
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.records import HEAD_HEADER, REFERENCE_HEADER

__all__ = ["check_namespace_log", "prepare_namespaces"]

log = structlog.get_logger("penstock.log")

_RETENTION: Final = ("retention.ms", "retention.bytes")
_COPIED: Final = ("cleanup.policy", "max.message.bytes", "min.insync.replicas", *_RETENTION)
"""Settings of the first topic that a new topic of a namespace gets too."""


def prepare_namespaces(
    connection: Connection, topics: Collection[str], first: TopicFacts
) -> TopicFacts:
    """Create the Kafka topics of namespaces if they are missing, and check them.

    Return `first`, with the largest size of a record that all topics accept. Raise KafkaUnusable.
    """
    if not topics:
        return first
    options = connection.options
    admin = TopicAdmin(connection)
    expected = admin.settings_of(options.topic)
    record_bytes_max = first.record_bytes_max
    for topic in topics:
        try:
            description = admin.with_partition(topic)
        except TopicMissing:
            config = {name: expected[name] for name in _COPIED}
            wanted = NewTopic(topic, options.node + 1, first.replicas, config=config)
            create_topics(admin.client, options, [wanted])
            description = admin.with_partition(topic)
        settings = admin.settings_of(topic)
        check_settings(options, topic, settings)
        replicas = len(description.partitions[options.node].replicas)
        copies = min(int(settings["min.insync.replicas"]), replicas)
        if copies < min(first.min_insync_replicas, first.replicas):
            raise KafkaUnusable(
                options.bootstrap,
                f"topic {topic!r} of a namespace has {replicas} replicas, and min.insync.replicas "
                f"{settings['min.insync.replicas']}: less than topic {options.topic!r}",
                "give both the same",
            )
        if int(settings["min.insync.replicas"]) > replicas:
            raise KafkaUnusable(
                options.bootstrap,
                f"topic {topic!r} has {replicas} replicas, and min.insync.replicas "
                f"{settings['min.insync.replicas']}",
                "add replicas, or lower min.insync.replicas",
            )
        differing = [name for name in _RETENTION if settings[name] != expected[name]]
        if differing:
            log.warning(
                "namespace with another retention",
                topic=topic,
                settings=differing,
                hint=f"give it the retention of {options.topic!r}: the shortest applies to both",
            )
        record_bytes_max = min(record_bytes_max, int(settings["max.message.bytes"]))
    return first._replace(record_bytes_max=record_bytes_max)


def check_namespace_log(
    reader: RecordReader,
    options: KafkaOptions,
    topic: str,
    *,
    log_id: int,
    find_head: Callable[[str], bytes | None],
) -> None:
    """Raise KafkaUnusable if the Kafka topic of a namespace has messages of another log.

    `find_head` returns the heads of this log. The first record of a partition tells, that of the
    own one first. A partition that does not answer is passed over. Raise OSError.
    """
    for number in sorted(reader.partitions(topic), key=lambda each: each != options.node):
        name = None
        with contextlib.suppress(OSError, RecordsRemoved):
            name = _first_head(reader, topic, number)
        if name is None:
            continue
        head = find_head(name)
        if head is None or parse_head(head).log_id != log_id:
            raise KafkaUnusable(
                options.bootstrap,
                f"topic {topic!r} of a namespace has messages of another log in partition {number}",
                "give the namespace a Kafka topic that no other log uses, or delete this one if "
                "the other log is no longer needed",
            )
        return


def _first_head(reader: RecordReader, topic: str, partition: int) -> str | None:
    """Return the name of the head of the first record; None if it is not a row group.

    Only the first topic of a log has references. They name no head; "" stands for it.
    """
    seconds_max = KAFKA_REFERENCE_SECONDS_MAX
    first, end = reader.bounds(topic, partition, seconds_max=seconds_max)
    message = None
    if first < end:
        message = reader.first(topic, partition, first, end=end, seconds_max=seconds_max)
    headers = {} if message is None else dict(message.headers() or ())
    if REFERENCE_HEADER in headers:
        return ""
    name = headers.get(HEAD_HEADER)
    return name.decode("ascii", "replace") if isinstance(name, bytes) else None
