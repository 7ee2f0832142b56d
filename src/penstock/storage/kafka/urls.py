"""URLs of logs on Kafka, `kafka://host:port/topic`, and the settings that may go with them."""

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.storage.kafka.options import OWN_SETTINGS

__all__ = ["TOPIC_DEFAULT", "KafkaUrl", "is_kafka_url", "parse_kafka_url", "setting_problem"]

SCHEME: Final = "kafka://"
TOPIC_DEFAULT: Final = "penstock"
_ADDRESSES: Final = re.compile(r"[^\s,/@]+:\d{1,5}(\s*,\s*[^\s,/@]+:\d{1,5})*")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KafkaUrl(NamedTuple):
    """The addresses of Kafka, with commas between, and the topic of the log."""

    bootstrap: str
    topic: str = TOPIC_DEFAULT

    @property
    def problem(self) -> str:
        """The fault of the URL; empty if it has none."""
        if not _ADDRESSES.fullmatch(self.bootstrap):
            return f"{self.bootstrap!r} is no address of Kafka, such as host:9092"
        if not _TOPIC.fullmatch(self.topic):
            return f"{self.topic!r} is no topic of Kafka"
        return ""


def is_kafka_url(place: str) -> bool:
    """Return whether a place is a log on Kafka."""
    return place.startswith(SCHEME)


def parse_kafka_url(url: str) -> KafkaUrl:
    """Return addresses and topic of a URL; raise ValueError with the problem."""
    parts = urlsplit(url)
    if not is_kafka_url(url) or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("it is not of the form kafka://host:port/topic")
    found = KafkaUrl(parts.netloc, parts.path.strip("/") or TOPIC_DEFAULT)
    if found.problem:
        raise ValueError(found.problem)
    return found


def setting_problem(name: str) -> str:
    """Return why a setting of librdkafka may not be given; empty if it may."""
    if name == "group.id":
        return "readers have no consumer group in Kafka"
    return "Penstock sets it itself" if name in OWN_SETTINGS else ""
