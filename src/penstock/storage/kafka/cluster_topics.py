"""Creates the two Kafka topics of a log if they are missing, and checks them."""

import base64
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)

from penstock.errors import CannotReadKafka, KafkaNotReached, KafkaUnusable
from penstock.limits import (
    KAFKA_OPEN_SECONDS_MAX,
    KAFKA_READ_SECONDS_MAX,
    KAFKA_RECORD_BYTES_MAX,
    KAFKA_RECORD_BYTES_MIN,
    KAFKA_REFUSED_SECONDS_MAX,
    KAFKA_STATE_RECORD_BYTES_MAX,
)
from penstock.storage.kafka.client import Connection, settings_checked
from penstock.storage.kafka.options import KafkaOptions

__all__ = [
    "LogFacts",
    "TopicAdmin",
    "TopicFacts",
    "TopicMissing",
    "check_settings",
    "create_topics",
    "find_log",
    "prepare_topics",
]

log = structlog.get_logger("penstock.log")

_LOG_ID_BYTES: Final = 6
_BROKER_DEFAULT: Final = -1
_FOREVER: Final = "-1"
_RETRY_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 0.1
_Result = TypeVar("_Result")


class TopicFacts(NamedTuple):
    """Facts about the topic of messages. `log_id` is made from Kafka's id of the topic."""

    log_id: int
    partitions: int
    replicas: int
    min_insync_replicas: int
    record_bytes_max: int


class Copies(NamedTuple):
    """How many copies a topic has, and how many must be in sync for a write."""

    replicas: int
    min_insync_replicas: int

    @property
    def acknowledged(self) -> int:
        """Copies of each record that was acknowledged, at least."""
        return min(self.replicas, self.min_insync_replicas)


class LogFacts(NamedTuple):
    """The id of a log, as in TopicFacts, and the number of its partitions."""

    log_id: int
    partitions: int


def find_log(connection: Connection, admin: AdminClient) -> LogFacts:
    """Return the facts of a log in Kafka; create nothing. Raise CannotReadKafka or OSError."""
    options = connection.options
    topics = TopicCollection([options.topic])
    try:
        (future,) = admin.describe_topics(topics, request_timeout=KAFKA_READ_SECONDS_MAX).values()
        deadline = time.monotonic() + KAFKA_READ_SECONDS_MAX
        found: TopicDescription = _answer(admin, future, lambda: deadline)
    except KafkaException as failed:
        error: KafkaError = failed.args[0]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise CannotReadKafka(options.location, "Kafka has no such topic") from None
        if error.code() in _TEMPORARY or error.retriable():
            raise connection.timed_out(KAFKA_READ_SECONDS_MAX) from failed
        raise CannotReadKafka(options.location, error.str()) from failed
    except TimeoutError as failed:
        raise connection.timed_out(KAFKA_READ_SECONDS_MAX) from failed
    return LogFacts(_log_id(found), len(found.partitions))


def _log_id(description: TopicDescription) -> int:
    identity = base64.urlsafe_b64decode(f"{description.topic_id}==")
    return int.from_bytes(identity[:_LOG_ID_BYTES], "big")


class TopicAdmin:
    """Asks Kafka about topics and changes them, within the time in which a broker starts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.options = connection.options
        with settings_checked(connection.options):
            self.client = connection.admin()
        self._deadline = time.monotonic() + KAFKA_OPEN_SECONDS_MAX

    def _ask(self, request: Callable[[], dict[Any, Future[_Result]]]) -> _Result:
        return _ask(self._connection, self.client, request, self._deadline)

    def describe(self, topic: str) -> TopicDescription:
        """Return Kafka's description of a topic; raise KafkaUnusable or TopicMissing."""
        topics = TopicCollection([topic])
        found: TopicDescription = self._ask(lambda: self.client.describe_topics(topics))
        return found

    def settings_of(self, topic: str) -> dict[str, Any]:
        """Return the settings of a topic; raise KafkaUnusable."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self._ask(lambda: self.client.describe_configs([resource]))
        return {name: entry.value for name, entry in found.items()}

    def with_partition(self, topic: str) -> TopicDescription:
        """Add the partition of this node to a topic if it is missing; return the topic.

        Raise KafkaUnusable or TopicMissing.
        """
        node = self.options.node
        description = self.describe(topic)
        if node >= len(description.partitions):
            wanted = NewPartitions(topic, node + 1)
            with contextlib.suppress(KafkaUnusable):  # another node may have added more meanwhile
                self._ask(lambda: self.client.create_partitions([wanted]))
            description = self.describe(topic)
        while node >= len(description.partitions):
            if time.monotonic() > self._deadline:
                reason = f"topic {topic!r} has no partition {node}"
                raise KafkaUnusable(self.options.bootstrap, reason, "add partitions to it")
            time.sleep(_RETRY_SECONDS)
            description = self.describe(topic)
        return description


def prepare_topics(connection: Connection) -> TopicFacts:
    """Create the topics of a log if they are missing, and check them; raise KafkaUnusable."""
    options = connection.options
    admin = TopicAdmin(connection)
    try:
        for topic in (options.topic, options.state_topic):
            admin.describe(topic)
    except TopicMissing:
        _create_both(admin.client, options)
    description = admin.with_partition(options.topic)
    settings = admin.settings_of(options.topic)
    state = admin.describe(options.state_topic)
    state_settings = admin.settings_of(options.state_topic)
    _check_state(options, state_settings)
    check_settings(options, options.topic, settings)
    facts = TopicFacts(
        log_id=_log_id(description),
        partitions=len(description.partitions),
        replicas=len(description.partitions[options.node].replicas),
        min_insync_replicas=int(settings["min.insync.replicas"]),
        record_bytes_max=min(int(settings["max.message.bytes"]), KAFKA_RECORD_BYTES_MAX),
    )
    _report(
        options,
        facts,
        state=Copies(len(state.partitions[0].replicas), int(state_settings["min.insync.replicas"])),
    )
    return facts


class TopicMissing(Exception):
    """The topic does not exist."""


def _answer(
    admin: AdminClient, future: "Future[_Result]", deadline: Callable[[], float]
) -> _Result:
    """Wait for an answer; raise TimeoutError or KafkaException.

    Meanwhile the client reports why it cannot connect: it does so only when it is polled.
    """
    while True:
        try:
            return future.result(timeout=_POLL_SECONDS)
        except TimeoutError:
            admin.poll(0)
            if time.monotonic() > deadline():
                raise


def _ask(
    connection: Connection,
    admin: AdminClient,
    request: Callable[[], dict[Any, "Future[_Result]"]],
    deadline: float,
) -> _Result:
    """Return the answer to a request about one topic; raise KafkaUnusable or TopicMissing."""
    bootstrap = connection.options.bootstrap

    def ends() -> float:
        nonlocal deadline
        if connection.refusal() is not None:  # tried again: a Kafka broker may be starting
            deadline = min(deadline, time.monotonic() + KAFKA_REFUSED_SECONDS_MAX)
        return deadline

    while True:
        try:
            (future,) = request().values()
            return _answer(admin, future, ends)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing from None
            if not error.retriable() and error.code() not in _TEMPORARY:
                raise KafkaUnusable(bootstrap, error.str(), _REMEDY) from failed
            if time.monotonic() > ends():
                raise _unreachable(connection) from failed
        except TimeoutError as failed:
            raise _unreachable(connection) from failed
        time.sleep(_RETRY_SECONDS)


def _unreachable(connection: Connection) -> KafkaUnusable:
    bootstrap, refusal = connection.options.bootstrap, connection.refusal()
    if refusal is not None:
        return KafkaUnusable(bootstrap, f"Kafka: {refusal.reason}", refusal.remedy)
    reason = connection.timed_out(KAFKA_OPEN_SECONDS_MAX).strerror or ""
    return KafkaNotReached(bootstrap, reason, _REMEDY)


_REMEDY: Final = "check storage.bootstrap, and TLS and SASL in [storage.kafka]"
_TEMPORARY: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
    }
)


def _create_both(admin: AdminClient, options: KafkaOptions) -> None:
    """Create both topics. Another node may do the same at the same time."""
    retention = options.log.retention
    age, size = retention.age_seconds_max, retention.bytes_max
    topics = [
        NewTopic(
            options.topic,
            options.node + 1,
            _BROKER_DEFAULT,
            config={
                "cleanup.policy": "delete",
                "max.message.bytes": str(KAFKA_RECORD_BYTES_MAX),
                "retention.ms": _FOREVER if age is None else str(int(age * 1000)),
                "retention.bytes": _FOREVER if size is None else str(size),
            },
        ),
        NewTopic(
            options.state_topic,
            1,
            _BROKER_DEFAULT,
            config={
                "cleanup.policy": "compact",
                "max.message.bytes": str(KAFKA_STATE_RECORD_BYTES_MAX),
            },
        ),
    ]
    create_topics(admin, options, topics)


def create_topics(admin: AdminClient, options: KafkaOptions, topics: list[NewTopic]) -> None:
    """Create topics, and wait until Kafka's brokers know them; raise KafkaUnusable."""
    for topic, future in admin.create_topics(topics).items():
        try:
            future.result(timeout=KAFKA_OPEN_SECONDS_MAX)
        except (KafkaException, TimeoutError) as failed:
            error = failed.args[0] if failed.args else None
            if isinstance(error, KafkaError):
                if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                raise KafkaUnusable(
                    options.bootstrap, error.str(), f"create {topic!r} yourself"
                ) from failed
            raise KafkaNotReached(options.bootstrap, "no answer", _REMEDY) from failed
    names = [each.topic for each in topics]
    deadline = time.monotonic() + KAFKA_OPEN_SECONDS_MAX
    while time.monotonic() < deadline:  # brokers learn of a new topic one after the other
        known = admin.list_topics(timeout=KAFKA_OPEN_SECONDS_MAX).topics
        if all(
            name in known
            and known[name].error is None
            and all(part.leader >= 0 for part in known[name].partitions.values())
            for name in names
        ):
            return
        time.sleep(_RETRY_SECONDS)


def _check_state(options: KafkaOptions, state: dict[str, Any]) -> None:
    if state["cleanup.policy"] != "compact":
        raise KafkaUnusable(
            options.bootstrap,
            f"topic {options.state_topic!r} has cleanup.policy {state['cleanup.policy']!r}",
            "set it to 'compact': otherwise Kafka removes topics and offsets of groups",
        )
    if int(state["max.message.bytes"]) < KAFKA_STATE_RECORD_BYTES_MAX:
        log.warning(
            "state topic with small records",
            topic=options.state_topic,
            max_message_bytes=int(state["max.message.bytes"]),
            hint=f"set max.message.bytes to {KAFKA_STATE_RECORD_BYTES_MAX}: otherwise the state of "
            "a consumer group with many unacknowledged messages may not be stored",
        )


def check_settings(options: KafkaOptions, topic: str, settings: dict[str, Any]) -> None:
    """Check the settings of a topic of messages; raise KafkaUnusable."""
    if settings["cleanup.policy"] != "delete":
        raise KafkaUnusable(
            options.bootstrap,
            f"topic {topic!r} has cleanup.policy {settings['cleanup.policy']!r}",
            "set it to 'delete': compaction would remove messages",
        )
    if int(settings["max.message.bytes"]) < KAFKA_RECORD_BYTES_MIN:
        raise KafkaUnusable(
            options.bootstrap,
            f"topic {topic!r} has max.message.bytes {settings['max.message.bytes']}",
            f"set it to at least {KAFKA_RECORD_BYTES_MIN}",
        )


def _report(options: KafkaOptions, facts: TopicFacts, *, state: Copies) -> None:
    """Log how many copies an acknowledged message has; raise KafkaUnusable.

    The state topic counts, too: without it, a node does not know its topics, groups and offsets.
    """
    messages = Copies(facts.replicas, facts.min_insync_replicas)
    for topic, each in ((options.topic, messages), (options.state_topic, state)):
        if each.min_insync_replicas > each.replicas:
            raise KafkaUnusable(
                options.bootstrap,
                f"topic {topic!r} has {each.replicas} replicas, and min.insync.replicas "
                f"{each.min_insync_replicas}",
                "add replicas, or lower min.insync.replicas",
            )
    copies = messages.acknowledged
    fields = {
        "bootstrap": options.bootstrap,
        "topic": options.topic,
        "partition": options.node,
        "partitions": facts.partitions,
        "replication_factor": facts.replicas,
        "min_insync_replicas": facts.min_insync_replicas,
        "state_replication_factor": state.replicas,
        "state_min_insync_replicas": state.min_insync_replicas,
    }
    meaning = f"an acknowledged message is on {copies} of {facts.replicas} Kafka brokers at least"
    lost = [
        name
        for name, each in (("messages", messages), (f"topic {options.state_topic!r}", state))
        if each.acknowledged < 2
    ]
    if lost:
        log.warning(
            "log on kafka",
            **fields,
            acknowledged=meaning,
            hint=f"the loss of one Kafka broker may lose {' and '.join(lost)}: use replication "
            "factor 3 and min.insync.replicas 2",
        )
    else:
        log.info("log on kafka", **fields, acknowledged=meaning)
