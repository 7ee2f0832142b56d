"""Options of the data source, with the names and meaning of Spark's Kafka source where it has them.

An option that is unknown, invalid or of another use raises InvalidOption with the valid values.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.limits import SPARK_TASKS_MAX
from penstock.ports.selection import Selection
from penstock.spark.errors import InvalidOption
from penstock.spark.kafka_place import (
    BOOTSTRAP,
    KAFKA_TOPIC,
    KafkaPlace,
    kafka_place,
)
from penstock.spark.offset_spec import (
    NamedOffset,
    OffsetSpec,
    parse_offsets,
    parse_timestamp,
    parse_topic_timestamps,
)
from penstock.spark.option_values import OptionValues
from penstock.spark.parallelism import TaskLimit, cores_in_environment
from penstock.spark.retrying_client import RetryingClient
from penstock.spark.subscription import parse_subscription
from penstock.storage.group_offsets import InvalidGroup, check_group_name
from penstock.tracing import is_installed

__all__ = [
    "OPTIONS",
    "Broker",
    "ReadOptions",
    "WriteOptions",
    "parse_columns",
    "read_options",
    "write_options",
]

_BROKER: Final = ("endpoint", "token", "certificate")
_WHERE: Final = ("path", *_BROKER, BOOTSTRAP, KAFKA_TOPIC)
_READ: Final = (
    *_WHERE, "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "columns",
    "traces",
)  # fmt: skip
_BATCH: Final = (*_READ, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM: Final = (
    *_READ, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "group", "newTopics",
)  # fmt: skip
_WRITE: Final = (*_BROKER, "topic", "writer", "epoch")
_STREAM_WRITE: Final = (*_BROKER, "topic", "writer")

OPTIONS: Final = tuple(dict.fromkeys((*_BATCH, *_STREAM, *_WRITE)))
"""All options of the data source."""

_NUMBER_MAX: Final = 1 << 62
_DELAY: Final = re.compile(r"(\d{1,18})\s*([a-z]*)")
_UNIT_SECONDS: Final = {
    "": 1e-3, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400,
}  # fmt: skip
"""Units of time as Spark has them; a number without one is milliseconds."""
_DELAY_DEFAULT: Final = "15m"

_COLLECTOR: Final = re.compile(r"https?://[^\s/]+(/\S*)?")
_ENDPOINT: Final = re.compile(r"((grpc|grpc\+tcp|grpc\+tls|grpcs)://)?[^\s/]+:\d{1,5}/?")


@dataclasses.dataclass(frozen=True)
class Broker:
    """The Arrow Flight address of a broker, the token, and the authority of its certificate.

    `certificate` is PEM text that the driver has read, so executors need no file.
    """

    endpoint: str
    token: str | None = dataclasses.field(default=None, repr=False)
    certificate: bytes | None = dataclasses.field(default=None, repr=False)

    def client(self, *, expected: bool = True) -> RetryingClient:
        """Return a client; it does not retry its first call if the broker is not `expected`."""
        return RetryingClient(
            self.endpoint, token=self.token, certificate=self.certificate, expected=expected
        )


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """Options of a reader, of a data folder, of a broker or of a log on Kafka."""

    where: Path | Broker | KafkaPlace
    selection: Selection
    partitions: frozenset[int] | None
    """The partitions to read, None for all."""
    starting: OffsetSpec
    ending: OffsetSpec
    tasks: int | None
    cores: int | None
    records_max: int | None
    """The maximum number of records of a task."""
    offsets_max: int | None
    offsets_min: int | None
    delay_seconds_max: float
    """How long a batch of fewer than `offsets_min` records is delayed."""
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...] | None
    group: str | None
    new_topics: NamedOffset
    traces: str | None
    """The URL of a collector of spans; None if there are none."""

    @property
    def task_limit(self) -> TaskLimit:
        """The number of tasks, or of the cores that run them."""
        return TaskLimit(self.tasks, self.cores)


@dataclasses.dataclass(frozen=True)
class WriteOptions:
    """Options of a sink. `writer` and `epoch` identify rows that must be published only once."""

    broker: Broker
    topic: str | None
    writer: str | None
    epoch: int | None


def read_options(
    options: Mapping[str, str], *, streaming: bool, cores: int | None = None
) -> ReadOptions:
    """Parse the options of a batch or a stream; raise InvalidOption.

    `cores` is the number of cores of the executors, by default that of the environment.
    """
    use = "a stream" if streaming else "a batch"
    given = OptionValues(options, _STREAM if streaming else _BATCH, use, every=OPTIONS)
    group = given.text("group")
    if group is not None:
        try:
            check_group_name(group)
        except InvalidGroup as error:
            raise InvalidOption("group", str(error), "such a name") from error
    selection, partitions = parse_subscription(
        given.text("subscribe"), given.text("subscribePattern"), given.text("assign")
    )
    starting, ending = _starting(given, streaming=streaming), _ending(given)
    for spec in (starting, ending):
        _check_topics(spec, selection)
    _check_order(starting, ending)
    offsets_max = given.number("maxOffsetsPerTrigger", least=1, most=_NUMBER_MAX)
    offsets_min = given.number("minOffsetsPerTrigger", least=1, most=_NUMBER_MAX)
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        problem = f"{offsets_min} is more than maxOffsetsPerTrigger"
        raise InvalidOption("minOffsetsPerTrigger", problem, f"numbers up to {offsets_max}")
    return ReadOptions(
        where=_where(given),
        selection=selection,
        partitions=partitions,
        starting=starting,
        ending=ending,
        tasks=given.number("minPartitions", least=1, most=SPARK_TASKS_MAX),
        cores=cores_in_environment() if cores is None else cores,
        records_max=given.number("maxRecordsPerPartition", least=1, most=_NUMBER_MAX),
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        delay_seconds_max=_delay(given),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=True),
        columns=parse_columns(given.text("columns")),
        group=group,
        new_topics=_new_topics(given),
        traces=_traces(given),
    )


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Return the names of the option `columns`; None if it is not set. Raise InvalidOption."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if "" in names:
        allowed = "names of columns with commas between"
        raise InvalidOption("columns", f"{text!r} has an empty name", allowed)
    return names


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse the options of a sink; raise InvalidOption."""
    use = "a sink of a stream" if streaming else "a sink"
    given = OptionValues(options, _STREAM_WRITE if streaming else _WRITE, use, every=OPTIONS)
    writer = given.text("writer")
    epoch = given.number("epoch", least=0, most=_NUMBER_MAX)
    if not streaming and (writer is None) is not (epoch is None):
        missing, there = ("epoch", "writer") if epoch is None else ("writer", "epoch")
        problem = f"it is missing beside {there}"
        raise InvalidOption(missing, problem, "both, for rows that must not go twice, or neither")
    if writer is not None:
        try:
            check_group_name(writer)
        except InvalidGroup as error:
            raise InvalidOption("writer", str(error), "such a name") from error
    return WriteOptions(_broker(given), given.text("topic"), writer, epoch)


def _where(given: OptionValues) -> Path | Broker | KafkaPlace:
    path = given.text("path")
    if given.reads_kafka:
        for name in _BROKER:
            if given.text(name) is not None:
                raise InvalidOption(name, "Kafka is read without a broker", f"{name} without it")
        topic = given.text(KAFKA_TOPIC)
        return kafka_place(path, given.text(BOOTSTRAP), topic, given.kafka_settings)
    if given.text(KAFKA_TOPIC) is not None:
        raise InvalidOption(KAFKA_TOPIC, "it is for a log on Kafka", f"it beside {BOOTSTRAP}")
    if path is not None and given.text("endpoint") is not None:
        raise InvalidOption("endpoint", "there is path too", "one of path, endpoint")
    if path is None:
        return _broker(given)
    for name in ("token", "certificate"):
        if given.text(name) is not None:
            raise InvalidOption(name, "files ask for none", f"{name} with endpoint")
    if not path.strip():
        raise InvalidOption("path", "it is empty", "a broker's data folder")
    local = path.removeprefix("file://") if path.startswith("file:///") else path
    if "://" in local:
        allowed = (
            "a broker's data folder that driver and executors can read, or kafka://host:port/topic;"
            " endpoint for others"
        )
        raise InvalidOption("path", f"{path!r} is not supported", allowed)
    return Path(local)


def _broker(given: OptionValues) -> Broker:
    endpoint = given.text("endpoint")
    if endpoint is None:
        allowed = (
            "path (a data folder, to read), endpoint (grpc://host:port of a broker) or "
            f"{BOOTSTRAP} (host:port of Kafka, to read)"
        )
        if given.is_empty:
            allowed += (
                "; Spark does not pass on the options of CREATE TABLE … USING: "
                "use CREATE TEMPORARY VIEW … USING"
            )
        raise InvalidOption("endpoint", "it is missing", allowed)
    if not _ENDPOINT.fullmatch(endpoint):
        allowed = "host:port, grpc://host:port, grpc+tls://host:port"
        raise InvalidOption("endpoint", f"{endpoint!r} is no address", allowed)
    return Broker(endpoint, given.text("token"), _certificate(given, endpoint))


def _certificate(given: OptionValues, endpoint: str) -> bytes | None:
    path = given.text("certificate")
    if path is None:
        return None
    allowed = "a file of the driver with PEM certificates, with an endpoint grpc+tls://host:port"
    if not endpoint.startswith(("grpc+tls://", "grpcs://")):
        raise InvalidOption("certificate", f"{endpoint} is without TLS", allowed)
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read: {(error.strerror or str(error)).lower()}"
        raise InvalidOption("certificate", problem, allowed) from error
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise InvalidOption("certificate", f"{path} has none", allowed)
    return found


def _starting(given: OptionValues, *, streaming: bool) -> OffsetSpec:
    """Return the start of a read; times override offsets, as in Spark's Kafka source."""
    default = NamedOffset.LATEST if streaming else NamedOffset.EARLIEST
    must_match = _must_match(given)
    time = given.text("startingTimestamp")
    if time is not None:
        return parse_timestamp("startingTimestamp", time, must_match=must_match)
    times = given.text("startingOffsetsByTimestamp")
    if times is not None:
        return parse_topic_timestamps(
            "startingOffsetsByTimestamp", times, others=default, must_match=must_match
        )
    offsets = given.text("startingOffsets")
    if offsets is None:
        return OffsetSpec("startingOffsets", default)
    spec = parse_offsets("startingOffsets", offsets, others=default)
    if not streaming and spec.has(NamedOffset.LATEST):
        allowed = 'for a batch: "earliest", or JSON without -1'
        raise InvalidOption("startingOffsets", "a batch cannot begin at the end", allowed)
    return spec


def _must_match(given: OptionValues) -> bool:
    option = "startingOffsetsByTimestampStrategy"
    text = (given.text(option) or "latest").strip().lower()
    if text not in {"error", "latest"}:
        raise InvalidOption(option, f"{text!r} is neither", "error, latest")
    return text == "error"


def _delay(given: OptionValues) -> float:
    text = given.text("maxTriggerDelay") or _DELAY_DEFAULT
    found = _DELAY.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNIT_SECONDS:
        allowed = "a whole number with a unit: us, ms, s, m, min, h, d; milliseconds without one"
        raise InvalidOption("maxTriggerDelay", f"{text!r} is no time span", allowed)
    return int(found[1]) * _UNIT_SECONDS[found[2]]


def _check_topics(spec: OffsetSpec, selection: Selection) -> None:
    """Raise InvalidOption unless the topics that are listed are those that are read."""
    listed = spec.topic_names
    if not listed:
        return
    other = sorted(name for name in listed if not selection.wanted(name))
    if other:
        allowed = "the topics of subscribe, subscribePattern or assign"
        raise InvalidOption(spec.option, f"{other[0]!r} is not among the topics to read", allowed)
    missing = sorted((selection.topics or frozenset()) - listed)
    if missing:
        allowed = "all topics that subscribe or assign names"
        if spec.topics:
            allowed += "; -2 is earliest, -1 latest"
        raise InvalidOption(spec.option, f"{missing[0]!r} is missing", allowed)


def _check_order(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """Raise InvalidOption if a topic ends before it starts."""
    for starts, ends in (
        (starting.topics, ending.topics),
        (starting.topic_timestamps_us, ending.topic_timestamps_us),
    ):
        for topic, by_partition in ends.items():
            for partition, end in by_partition.items():
                start = starts.get(topic, {}).get(partition)
                if isinstance(start, int) and isinstance(end, int) and start > end:
                    problem = f"{topic!r} ends before it starts"
                    raise InvalidOption(ending.option, problem, "an end after the start")


def _new_topics(given: OptionValues) -> NamedOffset:
    text = given.text("newTopics")
    if text is None:
        return NamedOffset.LATEST
    try:
        return NamedOffset(text.strip().lower())
    except ValueError:
        raise InvalidOption("newTopics", f"{text!r} is neither", "earliest, latest") from None


def _traces(given: OptionValues) -> str | None:
    """Return the URL of a collector; raise InvalidOption without the SDK that sends spans."""
    url = given.text("traces")
    if url is None:
        return None
    if not _COLLECTOR.fullmatch(url):
        allowed = "a URL such as http://127.0.0.1:4318/v1/traces"
        raise InvalidOption("traces", f"{url!r} is no HTTP URL", allowed)
    if not is_installed():
        problem = "the SDK of OpenTelemetry is not installed"
        raise InvalidOption("traces", problem, "install penstock-broker[tracing]")
    return url


def _ending(given: OptionValues) -> OffsetSpec:
    """Return the end of a read; times override offsets, as in Spark's Kafka source."""
    time = given.text("endingTimestamp")
    if time is not None:
        return parse_timestamp("endingTimestamp", time)
    times = given.text("endingOffsetsByTimestamp")
    if times is not None:
        option = "endingOffsetsByTimestamp"
        return parse_topic_timestamps(option, times, others=NamedOffset.LATEST)
    offsets = given.text("endingOffsets")
    if offsets is None:
        return OffsetSpec("endingOffsets", NamedOffset.LATEST)
    spec = parse_offsets("endingOffsets", offsets, others=NamedOffset.LATEST)
    if spec.has(NamedOffset.EARLIEST):
        allowed = '"latest", or JSON without -2'
        raise InvalidOption("endingOffsets", "a batch cannot end at the beginning", allowed)
    return spec
