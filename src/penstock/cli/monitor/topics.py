"""`penstock topics`: the topics of a running broker."""

import sys
from typing import Annotated, Any, Final

import typer

from penstock.cli.common.columns import plural, print_columns, short_size
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl

__all__ = ["TOPICS_EXAMPLES", "topics"]

TOPICS_EXAMPLES: Final = examples(
    "penstock topics",
    "penstock topics --prefix sensors/ --sort messages",
    "penstock topics --url http://127.0.0.1:7080 --json | jq .topics[].name",
    "penstock topics delete sensors/old",
)
_ORDERS: Final = ("name", "messages", "bytes", "subscribers")


def topics(
    *,
    url: ApiUrl = API_URL_DEFAULT,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only names with this prefix.", show_default=False)
    ] = "",
    sort: Annotated[str, typer.Option(metavar="|".join(_ORDERS), help="The order.")] = ("name"),
    limit: Annotated[int, typer.Option(min=1, help="List at most so many topics.")] = 10_000,
    ca: ApiCa = None,
    json: Json = False,
) -> None:
    """List the topics that you may read, with their traffic since the broker started.

    `penstock topics delete` deletes topics.
    """
    if sort not in _ORDERS:
        raise typer.BadParameter(f"{sort!r} is none of {', '.join(_ORDERS)}.", param_hint="--sort")
    api = Api(url, ca=ca)
    found = list(api.pages("/api/topics", "topics", {"prefix": prefix}, limit=limit))
    found.sort(key=lambda topic: topic["name"])
    if sort != "name":
        found.sort(key=lambda topic: int(topic[sort]), reverse=True)
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line({"topics": found}))
            sys.stdout.buffer.flush()
            return
        if found:
            title = ("MESSAGES", "BYTES", "SUBSCRIBERS", "LAST", "TOPIC")
            print_columns([title, *map(_row, found)], left=2)
        typer.echo(plural(len(found), "topic"))


def _row(topic: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{topic['messages']:,}",
        short_size(topic["bytes"]),
        f"{topic['subscribers']:,}",
        topic["last_time"] or "-",
        shown(topic["name"]),
    )
