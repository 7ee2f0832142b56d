"""The options of `penstock log`. The commands only read, also while a broker writes the log."""

import enum
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples
from penstock.cli.log.options import (
    DATA_DEFAULT,
    Data,
    From,
    KafkaSettings,
    Partition,
    Pattern,
    To,
)
from penstock.storage.kafka.urls import is_kafka_url
from penstock.storage.urls import is_url

__all__ = [
    "EXPORT_EXAMPLES",
    "IMPORT_EXAMPLES",
    "LS_EXAMPLES",
    "READ_EXAMPLES",
    "VERIFY_EXAMPLES",
    "ValueFormat",
    "export",
    "import_",
    "ls",
    "read",
    "verify",
]

LS_EXAMPLES: Final = examples(
    "penstock log ls", "penstock log ls --data /var/lib/penstock --topics"
)
READ_EXAMPLES: Final = examples(
    "penstock log read 'sensors/#' --from -15m",
    "penstock log read --from 2026-11-01 --count 10 --json",
)
VERIFY_EXAMPLES: Final = examples("penstock log verify", "penstock log verify --data backup --json")
EXPORT_EXAMPLES: Final = examples(
    "penstock log export out.parquet 'sensors/#' --from -1d",
    "penstock log export --data /var/lib/penstock --to kafka://host:9092/penstock",
)
IMPORT_EXAMPLES: Final = examples(
    "penstock log import --from kafka://host:9092/penstock --data restored",
    "penstock log import --from s3://bucket/penstock --data restored",
)


class ValueFormat(enum.StrEnum):
    """How values are printed."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"


def ls(
    *,
    data: Data = DATA_DEFAULT,
    partition: Partition = 0,
    topics: Annotated[
        bool, typer.Option("--topics", help="List topics and their number of messages, too.")
    ] = False,
    json: Json = False,
) -> None:
    """List the segments of a log and their known faults. Ends with 1 if there are faults."""
    from penstock.cli.log.ls import list_segments  # noqa: PLC0415  (--help without pyarrow)

    list_segments(data, partition, topics=topics, json=json)


def read(
    pattern: Pattern = None,
    *,
    data: Data = DATA_DEFAULT,
    partition: Partition = 0,
    start: From = "earliest",
    end: To = None,
    count: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="At most N messages.", show_default=False),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one object per line, with all columns; bytes in base64."
        ),
    ] = False,
    value: Annotated[
        ValueFormat | None,
        typer.Option(
            help="How values are printed; raw prints only the bytes and a newline.",
            show_default="text",
        ),
    ] = None,
) -> None:
    """Print messages: offset, time, topic, sender, protocol, kind and value, separated by tabs."""
    if json and value not in {None, ValueFormat.BASE64}:
        raise typer.BadParameter("--json has values in base64.", param_hint="--value")
    from penstock.cli.log.read import print_messages  # noqa: PLC0415  (--help without pyarrow)

    print_messages(
        data,
        partition,
        pattern=pattern,
        start=start,
        end=end,
        count=count,
        value_format=None if json else value or ValueFormat.TEXT,
    )


def verify(*, data: Data = DATA_DEFAULT, partition: Partition = 0, json: Json = False) -> None:
    """Check every byte of a log and print the findings. Ends with 1 if there are faults.

    An unfinished write at the end of the log, and gaps that the log declares, are not faults.
    """
    from penstock.cli.log.verify import verify_log  # noqa: PLC0415  (--help without pyarrow)

    verify_log(data, partition, json=json)


def export(
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT.parquet",
            help="The file to write, or its URL in an object store: s3://, gs:// or abfss://.",
            show_default=False,
        ),
    ] = None,
    pattern: Pattern = None,
    *,
    data: Data = DATA_DEFAULT,
    partition: Partition = 0,
    start: From = "earliest",
    end: To = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    kafka: KafkaSettings = None,
    json: Json = False,
) -> None:
    """Write messages to a Parquet file, with the columns of the Spark source.

    With --to kafka://HOST:PORT/TOPIC and no file, copy the whole log to Kafka, for a node with the
    number of the partition. Offsets, ids, times and senders stay the same.
    """
    if end is not None and is_kafka_url(end):
        if out is not None or pattern is not None or start != "earliest":
            problem = "the whole log is copied: give no file, no topics and no --from."
            raise typer.BadParameter(problem, param_hint="--to")
        from penstock.cli.log.moving import export_to_kafka  # noqa: PLC0415

        export_to_kafka(data, partition, end, kafka or (), json=json)
        return
    if kafka:
        raise typer.BadParameter("is for --to kafka://…", param_hint="--kafka")
    if out is None:
        raise typer.BadParameter("give a file, or --to kafka://…", param_hint="OUT.parquet")
    if not out.endswith(".parquet"):
        raise typer.BadParameter("its name must end in .parquet.", param_hint="OUT.parquet")
    from penstock.cli.log.export import export_messages  # noqa: PLC0415  (--help without pyarrow)

    export_messages(
        out if is_url(out) else Path(out),
        data,
        partition,
        pattern=pattern,
        start=start,
        end=end,
        force=force,
        json=json,
    )


def import_(
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL",
            help="The log: kafka://HOST:PORT/TOPIC, or the url of [storage.tier].",
            show_default=False,
        ),
    ],
    data: Data = DATA_DEFAULT,
    partition: Partition = 0,
    kafka: KafkaSettings = None,
    json: Json = False,
) -> None:
    """Copy a partition of a log on Kafka, or in an object store, to a data folder.

    Offsets, ids, times and senders stay the same.
    """
    if is_url(source) and not is_kafka_url(source):
        if kafka:
            raise typer.BadParameter("is for --from kafka://…", param_hint="--kafka")
        from penstock.cli.log.moving import import_from_store  # noqa: PLC0415

        import_from_store(source, data, partition, json=json)
        return
    from penstock.cli.log.moving import import_from_kafka  # noqa: PLC0415

    import_from_kafka(source, data, partition, kafka or (), json=json)
