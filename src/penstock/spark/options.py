"""Options of the data source, with the names and meaning of Spark's Kafka source where it has them.

An option that is unknown, invalid or of another use raises InvalidOption with the valid values.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.errors import InvalidPattern
from penstock.limits import SPARK_TASKS_MAX
from penstock.patterns import compile_pattern
from penstock.ports.expressions import check_expression
from penstock.ports.selection import Selection
from penstock.spark.errors import InvalidOption
from penstock.spark.offset_spec import NamedOffset, OffsetSpec, parse_offsets, parse_timestamp
from penstock.spark.parallelism import TaskLimit, cores_in_environment
from penstock.spark.retrying_client import RetryingClient
from penstock.storage.group_offsets import InvalidGroup, check_group_name

__all__ = [
    "Broker",
    "ReadOptions",
    "WriteOptions",
    "parse_columns",
    "read_options",
    "write_options",
]

_BROKER: Final = ("endpoint", "token", "certificate")
_WHERE: Final = ("path", *_BROKER)
_READ: Final = (
    *_WHERE, "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp",
    "minPartitions", "failOnDataLoss", "includeHeaders", "columns",
)  # fmt: skip
_BATCH: Final = (*_READ, "endingOffsets", "endingTimestamp")
_STREAM: Final = (*_READ, "maxOffsetsPerTrigger", "group", "newTopics")
_WRITE: Final = (*_BROKER, "topic", "writer", "epoch")
_STREAM_WRITE: Final = (*_BROKER, "topic", "writer")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options of Spark itself that Spark also passes to a sink."""

_BOOLEANS: Final = {"true": True, "false": False}
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
    """Options of a reader, of a data folder or of a broker."""

    where: Path | Broker
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec
    tasks: int | None
    cores: int | None
    offsets_max: int | None
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...] | None
    group: str | None
    new_topics: NamedOffset

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


_REMOVED: Final = {
    "filterpushdown": "it was removed, since Spark applies the filters of one use of a DataFrame"
    " to its other uses; select by subscribe, startingTimestamp and endingTimestamp"
}


def _unknown(name: str) -> str:
    return _REMOVED.get(name, "there is no such option")


class _OptionValues:
    """Option values by case-insensitive name."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...], use: str) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in allowed}
        every = {name.lower(): name for name in (*_BATCH, *_STREAM, *_WRITE)}
        for name in self._values:
            if name not in known | _OF_SPARK:
                problem = f"it is not for {use}" if name in every else _unknown(name)
                raise InvalidOption(every.get(name, name), problem, ", ".join(allowed))

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _BOOLEANS:
            raise InvalidOption(name, f"{text!r} is neither", "true, false")
        return _BOOLEANS[text.strip().lower()]

    def number(self, name: str, *, least: int, most: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = text.strip()
        if not (number.isascii() and number.isdigit() and least <= int(number) <= most):
            allowed = f"a whole number from {least} to {most}"
            raise InvalidOption(name, f"{text!r} is out of range or no number", allowed)
        return int(number)


def read_options(
    options: Mapping[str, str], *, streaming: bool, cores: int | None = None
) -> ReadOptions:
    """Parse the options of a batch or a stream; raise InvalidOption.

    `cores` is the number of cores of the executors, by default that of the environment.
    """
    use = "a stream" if streaming else "a batch"
    given = _OptionValues(options, _STREAM if streaming else _BATCH, use)
    group = given.text("group")
    if group is not None:
        try:
            check_group_name(group)
        except InvalidGroup as error:
            raise InvalidOption("group", str(error), "such a name") from error
    return ReadOptions(
        where=_where(given),
        selection=_selection(given),
        starting=_starting(given, streaming=streaming),
        ending=_ending(given),
        tasks=given.number("minPartitions", least=1, most=SPARK_TASKS_MAX),
        cores=cores_in_environment() if cores is None else cores,
        offsets_max=given.number("maxOffsetsPerTrigger", least=1, most=(1 << 62)),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=True),
        columns=parse_columns(given.text("columns")),
        group=group,
        new_topics=_new_topics(given),
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
    given = _OptionValues(options, _STREAM_WRITE if streaming else _WRITE, use)
    writer = given.text("writer")
    epoch = given.number("epoch", least=0, most=(1 << 62))
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


def _where(given: _OptionValues) -> Path | Broker:
    path = given.text("path")
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
        allowed = "a broker's data folder that driver and executors can read; endpoint for others"
        raise InvalidOption("path", f"{path!r} is not supported", allowed)
    return Path(local)


def _broker(given: _OptionValues) -> Broker:
    endpoint = given.text("endpoint")
    if endpoint is None:
        allowed = "path (a data folder, to read) or endpoint (grpc://host:port of a broker)"
        raise InvalidOption("endpoint", "it is missing", allowed)
    if not _ENDPOINT.fullmatch(endpoint):
        allowed = "host:port, grpc://host:port, grpc+tls://host:port"
        raise InvalidOption("endpoint", f"{endpoint!r} is no address", allowed)
    return Broker(endpoint, given.text("token"), _certificate(given, endpoint))


def _certificate(given: _OptionValues, endpoint: str) -> bytes | None:
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


def _selection(given: _OptionValues) -> Selection:
    subscribe, expression = given.text("subscribe"), given.text("subscribePattern")
    if subscribe is not None and expression is not None:
        allowed = "one of subscribe, subscribePattern; all topics without them"
        raise InvalidOption("subscribePattern", "there is subscribe too", allowed)
    if expression is not None:
        try:
            check_expression(expression)
        except ValueError as error:
            allowed = "a regular expression that is to match whole names of topics"
            raise InvalidOption("subscribePattern", f"{expression!r}: {error}", allowed) from error
        return Selection(expression=expression)
    if subscribe is None:
        return Selection()
    topics: set[str] = set()
    patterns: list[str] = []
    allowed = "names of topics or patterns with + and #, with commas between"
    for each in (name.strip() for name in subscribe.split(",")):
        try:
            wild = compile_pattern(each)
        except InvalidPattern as error:
            raise InvalidOption("subscribe", str(error) or "it is empty", allowed) from error
        if wild is None:
            topics.add(each)
        else:
            patterns.append(each)
    return Selection(topics=frozenset(topics), patterns=tuple(patterns) or None)


def _starting(given: _OptionValues, *, streaming: bool) -> OffsetSpec:
    """Return the start of a read; a timestamp overrides offsets, as in Spark's Kafka source."""
    default = NamedOffset.LATEST if streaming else NamedOffset.EARLIEST
    time, offsets = given.text("startingTimestamp"), given.text("startingOffsets")
    if time is not None:
        return parse_timestamp("startingTimestamp", time, others=NamedOffset.LATEST)
    if offsets is None:
        return OffsetSpec("startingOffsets", default)
    spec = parse_offsets("startingOffsets", offsets, others=default)
    if not streaming and NamedOffset.LATEST in {spec.named, *spec.offsets.values()}:
        allowed = 'for a batch: "earliest", or JSON without -1'
        raise InvalidOption("startingOffsets", "a batch cannot begin at the end", allowed)
    return spec


def _new_topics(given: _OptionValues) -> NamedOffset:
    text = given.text("newTopics")
    if text is None:
        return NamedOffset.LATEST
    try:
        return NamedOffset(text.strip().lower())
    except ValueError:
        raise InvalidOption("newTopics", f"{text!r} is neither", "earliest, latest") from None


def _ending(given: _OptionValues) -> OffsetSpec:
    time, offsets = given.text("endingTimestamp"), given.text("endingOffsets")
    if time is not None:
        return parse_timestamp("endingTimestamp", time, others=NamedOffset.LATEST)
    if offsets is None:
        return OffsetSpec("endingOffsets", NamedOffset.LATEST)
    spec = parse_offsets("endingOffsets", offsets, others=NamedOffset.LATEST)
    if NamedOffset.EARLIEST in {spec.named, *spec.offsets.values()}:
        allowed = '"latest", or JSON without -2'
        raise InvalidOption("endingOffsets", "a batch cannot end at the beginning", allowed)
    return spec
