"""The place of a log on Kafka, from options or a URL, without the client library of Kafka."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from penstock.limits import SPARK_KAFKA_CACHE_BYTES
from penstock.spark.errors import InvalidOption
from penstock.storage.kafka.options import KafkaReadOptions
from penstock.storage.kafka.urls import (
    TOPIC_DEFAULT,
    KafkaUrl,
    parse_kafka_url,
    setting_problem,
)

__all__ = ["BOOTSTRAP", "KAFKA_TOPIC", "PREFIX", "KafkaPlace", "kafka_place"]

BOOTSTRAP: Final = "kafka.bootstrap.servers"
KAFKA_TOPIC: Final = "kafkaTopic"
PREFIX: Final = "kafka."


@dataclasses.dataclass(frozen=True)
class KafkaPlace:
    """The addresses of Kafka, the topic of the log, and settings of librdkafka."""

    bootstrap: str
    topic: str = TOPIC_DEFAULT
    settings: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)

    @property
    def options(self) -> KafkaReadOptions:
        """The place as the storage takes it."""
        return KafkaReadOptions(
            self.bootstrap,
            self.topic,
            settings=dict(self.settings),
            cache_bytes_max=SPARK_KAFKA_CACHE_BYTES,
        )


def kafka_place(
    path: str | None, bootstrap: str | None, topic: str | None, settings: Mapping[str, str]
) -> KafkaPlace:
    """Return the place that a URL or options name; raise InvalidOption.

    Names in `settings` are librdkafka's, without the prefix that options have.
    """
    found = _from_url(path, bootstrap, topic) if path is not None else _named(bootstrap, topic)
    for setting in settings:
        problem = setting_problem(setting)
        if setting == "group.id":
            problem = "the name of the consumer group of a stream is the option group"
        if problem:
            allowed = "other settings of librdkafka, such as kafka.security.protocol"
            raise InvalidOption(PREFIX + setting, problem, allowed)
    return KafkaPlace(found.bootstrap, found.topic, tuple(sorted(settings.items())))


def _from_url(path: str, bootstrap: str | None, topic: str | None) -> KafkaUrl:
    for option, given in ((BOOTSTRAP, bootstrap), (KAFKA_TOPIC, topic)):
        if given is not None:
            raise InvalidOption(option, "there is path too", f"one of path, {option}")
    try:
        return parse_kafka_url(path)
    except ValueError as error:
        raise InvalidOption("path", str(error), "kafka://host:port/topic") from error


def _named(bootstrap: str | None, topic: str | None) -> KafkaUrl:
    addresses = (bootstrap or "").strip()
    if KafkaUrl(addresses).problem:
        allowed = "host:port of brokers of Kafka, with commas between"
        raise InvalidOption(BOOTSTRAP, f"{addresses!r} is no address", allowed)
    found = KafkaUrl(addresses, TOPIC_DEFAULT if topic is None else topic.strip())
    if found.problem:
        allowed = "the Kafka topic in which nodes keep the log, as in their storage.topic"
        raise InvalidOption(KAFKA_TOPIC, found.problem, allowed)
    return found
