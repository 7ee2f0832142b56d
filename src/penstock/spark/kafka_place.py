"""The place of a log on Kafka, from options or a URL, without the client library of Kafka."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from penstock.limits import SPARK_KAFKA_CACHE_BYTES
from penstock.spark.errors import InvalidOption
from penstock.storage.kafka.options import OWN_SETTINGS, KafkaReadOptions

__all__ = ["BOOTSTRAP", "KAFKA_TOPIC", "PREFIX", "KafkaPlace", "is_kafka_url", "kafka_place"]

BOOTSTRAP: Final = "kafka.bootstrap.servers"
KAFKA_TOPIC: Final = "kafkaTopic"
PREFIX: Final = "kafka."
SCHEME: Final = "kafka://"
TOPIC_DEFAULT: Final = "penstock"

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ADDRESSES: Final = re.compile(r"[^\s,/@]+:\d{1,5}(\s*,\s*[^\s,/@]+:\d{1,5})*")
_OTHERS: Final = {
    "group.id": "the name of the consumer group of a stream is the option group",
}


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


def is_kafka_url(path: str) -> bool:
    """Return whether a path names a log on Kafka."""
    return path.startswith(SCHEME)


def kafka_place(
    path: str | None, bootstrap: str | None, topic: str | None, settings: Mapping[str, str]
) -> KafkaPlace:
    """Return the place that a URL or options name; raise InvalidOption.

    Names in `settings` are librdkafka's, without the prefix that options have.
    """
    option = BOOTSTRAP
    if path is not None:
        option = "path"
        if not is_kafka_url(path):
            raise InvalidOption(BOOTSTRAP, "there is path too", f"one of path, {BOOTSTRAP}")
        if bootstrap is not None or topic is not None:
            other = BOOTSTRAP if bootstrap is not None else KAFKA_TOPIC
            raise InvalidOption(other, f"there is path too, {path!r}", f"one of path, {other}")
        bootstrap, topic = _parse(path)
    bootstrap = (bootstrap or "").strip()
    if not _ADDRESSES.fullmatch(bootstrap):
        allowed = "host:port of brokers of Kafka, with commas between"
        if option == "path":
            allowed = "kafka://host:port/topic"
        raise InvalidOption(option, f"{bootstrap!r} is no address", allowed)
    name = TOPIC_DEFAULT if topic is None else topic.strip()
    if not _TOPIC.fullmatch(name):
        allowed = "the Kafka topic in which nodes keep the log, as in their storage.topic"
        raise InvalidOption(KAFKA_TOPIC, f"{name!r} is no topic of Kafka", allowed)
    for setting in settings:
        if setting in _OTHERS or setting in OWN_SETTINGS:
            problem = _OTHERS.get(setting, "Penstock sets it itself")
            allowed = "other settings of librdkafka, such as kafka.security.protocol"
            raise InvalidOption(PREFIX + setting, problem, allowed)
    return KafkaPlace(bootstrap, name, tuple(sorted(settings.items())))


def _parse(url: str) -> tuple[str, str | None]:
    """Return addresses and topic of a URL; raise InvalidOption."""
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None:
        problem = "it has more than addresses and a topic"
        raise InvalidOption(
            "path", problem, "kafka://host:port/topic; settings are kafka.* options"
        )
    return parts.netloc, parts.path.strip("/") or None
