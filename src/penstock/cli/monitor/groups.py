"""`penstock groups`: the consumer groups of a running broker."""

import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from penstock.cli.common.columns import plural, print_columns
from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl
from penstock.limits import GROUP_LAG_TOPICS_MAX

__all__ = ["GROUPS_EXAMPLES", "groups"]

GROUPS_EXAMPLES: Final = examples(
    "penstock groups",
    "penstock groups dashboard --topics 100",
    "penstock groups --json | jq '.groups[] | select(.lag > 1000) | .name'",
)

_SHOWN_MAX: Final = 5


def groups(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="Only these groups.", show_default=False),
    ] = None,
    *,
    url: ApiUrl = API_URL_DEFAULT,
    topics: Annotated[
        int,
        typer.Option(
            min=0, max=GROUP_LAG_TOPICS_MAX, help="Show at most so many topics of each group."
        ),
    ] = 20,
    ca: ApiCa = None,
    json: Json = False,
) -> None:
    """List consumer groups with their lag: messages of their topics that they have not processed.

    Topics are those with the highest lag that you may read.
    """
    found = Api(url, ca=ca).get("/api/groups", {"topics": topics})["groups"]
    missing: set[str] = set()
    if names:
        missing = set(names) - {each["name"] for each in found}
        found = [each for each in found if each["name"] in names]
    _print(found, json=json)
    if missing:
        some = ", ".join(map(shown, sorted(missing)[:_SHOWN_MAX]))
        raise CommandFailed(
            f"there is no group {some}; commands are ls, show, reset, redrive and rm"
        )


def _print(found: list[dict[str, Any]], *, json: bool) -> None:
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line({"groups": found}))
            sys.stdout.buffer.flush()
            return
        if found:
            rows = [row for each in found for row in _rows(each)]
            head = ("LAG", "UNACKED", "MEMBERS", "LOST", "UPDATED", "GROUP", "TOPIC")
            print_columns([head, *rows], left=3)
        typer.echo(plural(len(found), "group"))


def _rows(group: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the row of a group, then one for each of its topics."""
    name = shown(group["name"])
    figures = (f"{group[key]:,}" for key in ("lag", "unacknowledged", "members", "lost"))
    yield (*figures, group["updated"], name, "")
    for each in group["topics"]:
        yield f"{each['lag']:,}", "", "", "", "", name, shown(each["topic"]) or "(no topic)"
