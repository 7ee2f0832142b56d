"""Settings of a log on Kafka."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from penstock.limits import KAFKA_CACHE_BYTES_MAX, KAFKA_COMMIT_SECONDS_MAX
from penstock.storage.options import LogOptions

__all__ = ["OWN_SETTINGS", "KafkaOptions", "KafkaReadOptions"]

OWN_SETTINGS: Final = frozenset(
    {
        "acks", "auto.offset.reset", "bootstrap.servers", "enable.auto.commit",
        "enable.idempotence", "enable.partition.eof", "isolation.level", "message.max.bytes",
        "metadata.broker.list", "request.required.acks", "transaction.timeout.ms",
        "transactional.id",
    }
)  # fmt: skip
"""Settings of librdkafka that Penstock sets itself: the promises of the log depend on them."""


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The place of a log on Kafka: this process writes the partition `node` of `topic`.

    `settings` are librdkafka's. With `deliver_committed`, own messages are passed to the follower
    of the log too, when they are committed. A commit that Kafka does not answer within
    `commit_seconds_max` has failed. `namespaces` are Kafka topics by pattern of topics.
    """

    bootstrap: str
    topic: str = "penstock"
    node: int = 0
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: LogOptions = dataclasses.field(default_factory=LogOptions)
    commit_seconds_max: float = KAFKA_COMMIT_SECONDS_MAX
    cache_bytes_max: int = KAFKA_CACHE_BYTES_MAX
    deliver_committed: bool = False
    namespaces: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def state_topic(self) -> str:
        """The compacted topic for everything that is not a message."""
        return f"{self.topic}-state"

    @property
    def transactional_id(self) -> str:
        """The name by which Kafka fences an earlier process of this node."""
        return self.transactional_id_of()

    def transactional_id_of(self, node: int | None = None) -> str:
        """Return that name of another node, or of this one."""
        return f"{self.topic}-{self.node if node is None else node}"

    @property
    def group_id(self) -> str:
        """The name by which Kafka knows the consumers; they commit no offsets."""
        return self.transactional_id

    @property
    def location(self) -> str:
        """The log as a URL."""
        return f"kafka://{self.bootstrap}/{self.topic}?node={self.node}"


class KafkaReadOptions(KafkaOptions):
    """The place of a log on Kafka that is only read, all partitions of it."""

    __slots__ = ()

    @property
    def group_id(self) -> str:
        """See KafkaOptions."""
        return f"{self.topic}-readers"

    @property
    def location(self) -> str:
        """The log as a URL."""
        return f"kafka://{self.bootstrap}/{self.topic}"
