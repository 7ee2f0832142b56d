"""What the pipeline is told: the typed contents of `pipeline.toml`.

One class for each table; `docs/pipeline.md` describes every key. `config_loading.load` is the way
to get a `PipelineConfig`: it has been checked as a whole.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock import limits

__all__ = [
    "BronzeConfig",
    "FieldConfig",
    "GoldConfig",
    "PipelineConfig",
    "PublishConfig",
    "SilverConfig",
    "SourceConfig",
    "SparkConfig",
    "WarehouseConfig",
]

_Text = Annotated[str, Meta(min_length=1)]
_Name = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,62}$")]
_Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
_Rows = Annotated[int, Meta(ge=1)]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class SourceConfig(_Table, frozen=True):
    """`[source]`: where messages are read, by `path` or by `endpoint`, and published back to.

    `certificate` is a PEM file of who signed the broker's, where the system does not know that.
    """

    path: str = ""
    endpoint: str = ""
    token: str = ""
    certificate: str = ""
    subscribe: _Text = "#"
    group: str = "pipeline"
    fail_on_data_loss: bool = True

    @property
    def options(self) -> dict[str, str]:
        """The options by which the data source finds the log."""
        if not self.endpoint:
            return {"path": self.path}
        named = {"endpoint": self.endpoint, "token": self.token, "certificate": self.certificate}
        return {name: value for name, value in named.items() if value}


class WarehouseConfig(_Table, frozen=True):
    """`[warehouse]`: the folder of all tables and of what the pipeline remembers."""

    folder: _Text = "warehouse"
    compact_files_min: Annotated[int, Meta(ge=2)] = limits.PIPELINE_COMPACT_FILES_MIN
    compact_bytes: Annotated[int, Meta(ge=limits.MIB)] = limits.PIPELINE_COMPACT_BYTES
    maintain_seconds: _Seconds = limits.PIPELINE_MAINTAIN_SECONDS
    vacuum_hours: Annotated[int, Meta(ge=limits.PIPELINE_VACUUM_HOURS_MIN)] = (
        limits.PIPELINE_VACUUM_HOURS
    )


class BronzeConfig(_Table, frozen=True):
    """`[bronze]`: how often records are taken from the log, and how many at once."""

    trigger_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    rows_max: _Rows = limits.PIPELINE_BATCH_ROWS_MAX


class FieldConfig(_Table, frozen=True):
    """`[[silver.field]]`: a column, its type, and where in a payload it is found.

    `path` leads into nested objects, with dots between the names; it is the name if not given.
    `formats` say how a time is written: "iso", "epoch_s", "epoch_ms", "epoch_us" or a pattern of
    Spark's such as "dd.MM.yyyy HH:mm"; the first that fits is taken.
    """

    name: _Name
    type: _Text = "string"
    path: str = ""
    required: bool = False
    array: bool = False
    formats: tuple[_Text, ...] = ()


class SilverConfig(_Table, frozen=True):
    """`[[silver]]`: a table of decoded rows, of the topics that fit."""

    name: _Name
    topics: Annotated[tuple[_Text, ...], Meta(min_length=1)]
    field: Annotated[tuple[FieldConfig, ...], Meta(min_length=1)]
    format: Literal["json", "messagepack", "csv", "text"] = "json"
    kinds: tuple[Literal["publish", "request", "reply", "notify", "broadcast"], ...] = ()
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ","
    pattern: str = ""
    event_time: str = "timestamp"
    watermark_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    late: Literal["dead-letter", "drop", "keep"] = "dead-letter"
    dedup: tuple[_Text, ...] = ("message_id",)


class GoldConfig(_Table, frozen=True):
    """`[gold]`: what is computed of all messages, how often, and the folder of further queries."""

    enabled: bool = True
    seconds: _Seconds = 10.0
    traffic_window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 60
    latency_window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 60
    unanswered_seconds: _Seconds = 30.0
    session_gap_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300
    sql: str = ""


class PublishConfig(_Table, frozen=True):
    """`[[publish]]`: a gold table whose changed rows are published to a topic, as JSON."""

    table: _Name
    topic: _Text


class SparkConfig(_Table, frozen=True):
    """`[spark]`: where Spark runs, and settings of its own."""

    master: _Text = "local[*]"
    memory: _Text = "1g"
    conf: dict[str, str] = {}


class PipelineConfig(_Table, frozen=True):
    """The whole file."""

    source: SourceConfig = SourceConfig()
    warehouse: WarehouseConfig = WarehouseConfig()
    bronze: BronzeConfig = BronzeConfig()
    silver: tuple[SilverConfig, ...] = ()
    silver_seconds: _Seconds = 1.0
    silver_rows_max: _Rows = limits.PIPELINE_BATCH_ROWS_MAX
    gold: GoldConfig = GoldConfig()
    publish: tuple[PublishConfig, ...] = ()
    spark: SparkConfig = SparkConfig()
