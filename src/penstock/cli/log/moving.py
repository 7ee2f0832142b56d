"""Copy a log from a data folder to Kafka, and back; or back from an object store."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import typer

from penstock.cli.common.progress import progress_bar
from penstock.cli.log.opening import Losses, open_view
from penstock.errors import CannotExport, CannotReadKafka
from penstock.storage.arrow.recover.tier_import import import_tier
from penstock.storage.kafka.options import KafkaOptions, KafkaReadOptions
from penstock.storage.kafka.urls import parse_kafka_url, setting_problem

__all__ = ["export_to_kafka", "import_from_kafka", "import_from_store"]


def export_to_kafka(
    data: Path, partition: int, url: str, settings: Sequence[str], *, json: bool
) -> None:
    """Copy a partition to Kafka, and print a summary."""
    losses = Losses()
    view = open_view(data, partition)
    try:
        place = parse_kafka_url(url)
    except ValueError as error:
        raise CannotExport(url, str(error), "give kafka://host:port/topic") from error
    with (
        _client_library(CannotExport(url, "confluent-kafka is not installed", _INSTALL)),
        progress_bar("exporting", view.end - view.horizon, unit="messages") as progress,
    ):
        from penstock.storage.kafka.moving import export_log  # noqa: PLC0415

        options = KafkaOptions(*place, node=partition, settings=_parsed(settings))
        moved = export_log(data, options, damaged=losses.tell, progress=progress)
    _report(url, partition, moved._asdict(), json=json)
    losses.exit()


def import_from_kafka(
    url: str, data: Path, partition: int, settings: Sequence[str], *, json: bool
) -> None:
    """Copy a partition from Kafka, and print a summary."""
    losses = Losses()
    try:
        place = parse_kafka_url(url)
    except ValueError as error:
        raise CannotReadKafka(url, f"{error}; give kafka://host:port/topic") from error
    with (
        _client_library(CannotReadKafka(url, f"confluent-kafka is not installed; {_INSTALL}")),
        progress_bar("importing", None, unit="messages") as progress,
    ):
        from penstock.storage.kafka.moving import import_log  # noqa: PLC0415

        options = KafkaReadOptions(*place, settings=_parsed(settings))
        moved = import_log(
            options, data, partition=partition, damaged=losses.tell, progress=progress
        )
    _report(str(data), partition, moved._asdict(), json=json)
    losses.exit()


def import_from_store(url: str, data: Path, partition: int, *, json: bool) -> None:
    """Copy a partition from an object store, and print a summary."""
    with progress_bar("importing", None, unit="bytes") as progress:
        imported = import_tier(url, data, partition=partition, progress=progress)
    _report(str(data), partition, imported._asdict(), json=json)


_INSTALL = "install penstock-broker[kafka]"


def _parsed(settings: Sequence[str]) -> dict[str, str]:
    """Return settings of librdkafka by name; raise typer.BadParameter."""
    found = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or not name:  # the text may be a password
            raise typer.BadParameter("give NAME=VALUE.", param_hint="--kafka")
        problem = setting_problem(name)
        if problem:
            raise typer.BadParameter(f"{name}: {problem}.", param_hint="--kafka")
        found[name] = value
    return found


@contextlib.contextmanager
def _client_library(missing: Exception) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing from error


def _report(place: str, partition: int, moved: dict[str, int], *, json: bool) -> None:
    if json:
        document = {"place": place, "partition": partition, **moved}
        typer.echo(msgspec.json.encode(document).decode())
        return
    typer.echo(
        f"{place}: {moved['messages']:,} messages in partition {partition}, "
        f"offsets {moved['start']} to {moved['end']}."
    )
