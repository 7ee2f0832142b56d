"""The Kafka topics of namespaces: created like the first topic if they are missing, and checked."""

from collections.abc import Collection
from typing import Final

import structlog
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from penstock.errors import KafkaUnusable
from penstock.storage.kafka.client import Connection
from penstock.storage.kafka.cluster_topics import (
    TopicAdmin,
    TopicFacts,
    TopicMissing,
    check_settings,
    create_topics,
)

__all__ = ["prepare_namespaces"]

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
