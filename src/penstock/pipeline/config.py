"""Settings of the pipeline: the typed contents of `pipeline.toml`.

One class for each TOML table; `docs/pipeline.md` describes every key. `config_loading.load` returns
a `PipelineConfig` that is validated as a whole.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from penstock import limits

__all__ = [
    "BUILT_IN_GOLD",
    "ELEMENT_COLUMN",
    "FIELD_TYPES",
    "METADATA_COLUMNS",
    "NAME_PATTERN",
    "PARTITION_PATTERN",
    "RECORD_COLUMN",
    "BronzeConfig",
    "FieldConfig",
    "GoldConfig",
    "GoldTableConfig",
    "MergeConfig",
    "PipelineConfig",
    "PublishConfig",
    "RegistryConfig",
    "SilverConfig",
    "SourceConfig",
    "SparkConfig",
    "WarehouseConfig",
    "partition_column",
]

FIELD_TYPES: Final = (
    "string", "boolean", "int", "long", "float", "double", "date", "timestamp", "binary", "struct",
)  # fmt: skip
METADATA_COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "protocol", "kind", "sender", "message_id",
    "event_time", "day",
)  # fmt: skip
"""Columns of every silver table in addition to its fields."""
RECORD_COLUMN: Final = "record"
"""The position of a record in its message, in tables whose messages have several records."""
ELEMENT_COLUMN: Final = "element"
"""The position in the array that a table explodes; null if the array is empty or missing."""
BUILT_IN_GOLD: Final = ("traffic", "exchanges", "latency", "sessions")
NAME_PATTERN: Final = "^[a-z][a-z0-9_]{0,62}$"
"""The names of tables and columns."""

_Text = Annotated[str, Meta(min_length=1)]
_Name = Annotated[
    str, Meta(pattern=NAME_PATTERN, title="up to 63 of a-z, 0-9 and _, a letter first")
]
_FieldPath = Annotated[
    str,
    Meta(pattern=r"^([^.']+(\.[^.']+)*)?$", title="names separated by dots, without quotes"),
]
PARTITION_PATTERN: Final = r"^([a-z][a-z0-9_]*)$|^(year|month|day|hour)\(([a-z][a-z0-9_]*)\)$"
_Partition = Annotated[
    str,
    Meta(
        pattern=PARTITION_PATTERN,
        title="a column, or year, month, day or hour of a time, such as day(at)",
    ),
]
_Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
_Rows = Annotated[int, Meta(ge=1)]


def partition_column(partition: str) -> str:
    """Return the column of a partition: its own name, or `at_day` for `day(at)`."""
    unit, bracket, column = partition.rstrip(")").partition("(")
    return f"{column}_{unit}" if bracket else unit


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table."""


class SourceConfig(_Table, frozen=True):
    """`[source]`: the log to read, by `path`, `url` or `endpoint`.

    `url` is that of a log on Kafka, `kafka` has settings of librdkafka for it. Rows are published
    to `endpoint`, also if they are read from Kafka.

    `certificate` is a PEM file with the authority of the broker's certificate. Without it the
    authorities of the system are used.
    """

    path: str = ""
    url: str = ""
    kafka: dict[str, str] = {}
    endpoint: str = ""
    token: str = ""
    certificate: str = ""
    subscribe: _Text = "#"
    group: str = "pipeline"
    fail_on_data_loss: bool = True
    traces: str = ""

    @property
    def options(self) -> dict[str, str]:
        """The options of the data source that name the log."""
        if self.url:
            settings = {f"kafka.{name}": value for name, value in self.kafka.items()}
            return {"path": self.url, **settings}
        if not self.endpoint:
            return {"path": self.path}
        return self.sink_options

    @property
    def sink_options(self) -> dict[str, str]:
        """The options of the data source that name the broker to publish to."""
        named = {"endpoint": self.endpoint, "token": self.token, "certificate": self.certificate}
        return {name: value for name, value in named.items() if value}


class WarehouseConfig(_Table, frozen=True):
    """`[warehouse]`: the folder of all tables and checkpoints, and their maintenance.

    If `folder` is a URL, checkpoints are in `state_folder`, on this machine.
    """

    folder: _Text = "warehouse"
    state_folder: _Text = "warehouse-state"
    compact_files_min: Annotated[int, Meta(ge=2)] = limits.PIPELINE_COMPACT_FILES_MIN
    compact_bytes: Annotated[int, Meta(ge=limits.MIB)] = limits.PIPELINE_COMPACT_BYTES
    maintain_seconds: _Seconds = limits.PIPELINE_MAINTAIN_SECONDS
    history_seconds: Annotated[float, Meta(ge=1, le=31_536_000)] = limits.PIPELINE_HISTORY_SECONDS
    vacuum_hours: Annotated[int, Meta(ge=limits.PIPELINE_VACUUM_HOURS_MIN)] = (
        limits.PIPELINE_VACUUM_HOURS
    )


class BronzeConfig(_Table, frozen=True):
    """`[bronze]`: the trigger interval and the size of a batch.

    With `trigger_ms` 0, the interval is that of the tables that read bronze.
    """

    trigger_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    rows_max: _Rows = limits.PIPELINE_BATCH_ROWS_MAX


class FieldConfig(_Table, frozen=True):
    """`[[silver.field]]`: a column, its type, and its path in the payload.

    `path` names nested objects with dots between the names; the default is the column's name.
    `formats` are the formats of a time, tried in order: "iso", "epoch_s", "epoch_ms", "epoch_us" or
    a pattern of Spark's such as "dd.MM.yyyy HH:mm". With `array` the column is a list of the type,
    with `map` a map from text to the type. `field` are the fields of a "struct"; their paths begin
    at the struct.
    """

    name: _Name
    type: _Text = "string"
    path: _FieldPath = ""
    required: bool = False
    array: bool = False
    map: bool = False
    formats: tuple[_Text, ...] = ()
    field: tuple["FieldConfig", ...] = ()


class MergeConfig(_Table, frozen=True):
    """`merge` of `[[silver]]`: a table with one row for each key, that of its newest message.

    `order_by` is the column by which messages are compared. A message for which `delete_when`, a
    SQL condition over the columns, is true removes the row.
    """

    key: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    order_by: _Text = "timestamp"
    delete_when: str = ""


class SilverConfig(_Table, frozen=True):
    """`[[silver]]`: a table of decoded payloads of the matching topics.

    `records` says how many records a payload has. `explode` is the path of an array in a record:
    there is a row for each of its elements, and paths at or below it begin at the element.
    `schema_file` is an Avro schema, a serialized FileDescriptorSet whose message type is `message`,
    or a JSON Schema. Fields that it declares need not be declared again. With `registry` payloads
    name their schemas in `[registry]`.
    """

    name: _Name
    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    field: tuple[FieldConfig, ...] = ()
    format: Literal["json", "messagepack", "csv", "text", "avro", "protobuf"] = "json"
    kinds: tuple[Literal["publish", "request", "reply", "notify", "broadcast"], ...] = ()
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ","
    pattern: str = ""
    event_time: str = "timestamp"
    watermark_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    late: Literal["dead-letter", "drop", "keep"] = "dead-letter"
    dedup: tuple[_Text, ...] = ("message_id",)
    merge: MergeConfig | None = None
    records: Literal["one", "array", "lines", "sequence"] = "one"
    explode: _FieldPath = ""
    schema_file: str = ""
    writer_schema_file: str = ""
    message: str = ""
    registry: bool = False
    partition_by: tuple[_Partition, ...] | None = None
    z_order: tuple[_Text, ...] = ()

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns and time units by which the table is partitioned.

        Merged rows move between days, so such a table has no partitions by default.
        """
        if self.partition_by is not None:
            return self.partition_by
        return () if self.merge is not None else ("day",)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned; `day(at)` is `at_day`."""
        return tuple(map(partition_column, self.partitions))

    @property
    def positions(self) -> tuple[str, ...]:
        """The columns with the position of a row in its message; none if it has one row."""
        record = (RECORD_COLUMN,) if self.records != "one" else ()
        return (*record, ELEMENT_COLUMN) if self.explode else record

    @property
    def dedup_key(self) -> tuple[str, ...]:
        """The columns by which rows are compared."""
        return ("message_id", *self.positions) if self.dedup == ("message_id",) else self.dedup

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """The columns of the table in addition to its fields."""
        return (*METADATA_COLUMNS, *self.positions)


class RegistryConfig(_Table, frozen=True):
    """`[registry]`: a registry of schemas with Confluent's HTTP API.

    `certificate` is a PEM file with the authority of its certificate.
    """

    url: str = ""
    user: str = ""
    password: str = ""
    certificate: str = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=600)] = limits.PIPELINE_REGISTRY_SECONDS


class GoldTableConfig(_Table, frozen=True):
    """`[[gold.table]]`: the partitions of a table of a SQL file."""

    name: _Name
    partition_by: Annotated[tuple[_Partition, ...], Meta(min_length=1)]


class GoldConfig(_Table, frozen=True):
    """`[gold]`: windows of the built-in tables, the interval, and the folder of SQL files."""

    enabled: bool = True
    seconds: _Seconds = 10.0
    traffic_window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 60
    latency_window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 60
    unanswered_seconds: _Seconds = 30.0
    session_gap_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300
    sql: str = ""
    table: tuple[GoldTableConfig, ...] = ()


class PublishConfig(_Table, frozen=True):
    """`[[publish]]`: a gold table whose changed rows are published to a topic, as JSON."""

    table: _Name
    topic: _Text


class SparkConfig(_Table, frozen=True):
    """`[spark]`: Spark's master, memory and further settings."""

    master: _Text = "local[*]"
    memory: _Text = "1g"
    conf: dict[str, str] = {}


class PipelineConfig(_Table, frozen=True):
    """The whole file."""

    source: SourceConfig = SourceConfig()
    warehouse: WarehouseConfig = WarehouseConfig()
    bronze: BronzeConfig = BronzeConfig()
    silver: tuple[SilverConfig, ...] = ()
    silver_seconds: _Seconds = 2.0
    silver_rows_max: _Rows = limits.PIPELINE_BATCH_ROWS_MAX
    gold: GoldConfig = GoldConfig()
    publish: tuple[PublishConfig, ...] = ()
    registry: RegistryConfig = RegistryConfig()
    spark: SparkConfig = SparkConfig()

    @property
    def bronze_seconds(self) -> float:
        """The minimum time between two commits of bronze.

        Without `bronze.trigger_ms` it is the interval of the tables that read bronze, since more
        commits would not make them fresher.
        """
        if self.bronze.trigger_ms:
            return self.bronze.trigger_ms / 1000
        return self.silver_seconds if self.silver else self.gold.seconds
