"""`penstock groups show`, `reset`, `redrive` and `rm`: one consumer group of a running broker."""

import sys
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from penstock.cli.common.columns import plural, print_columns
from penstock.cli.common.confirmation import confirm
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl
from penstock.cli.monitor.groups import groups

__all__ = [
    "LS_EXAMPLES",
    "REDRIVE_EXAMPLES",
    "RESET_EXAMPLES",
    "RM_EXAMPLES",
    "SHOW_EXAMPLES",
    "ls",
    "redrive",
    "reset",
    "rm",
    "show",
]

LS_EXAMPLES: Final = examples("penstock groups ls", "penstock groups ls --topics 0")
SHOW_EXAMPLES: Final = examples("penstock groups show billing")
RESET_EXAMPLES: Final = examples(
    "penstock groups reset billing --to earliest",
    "penstock groups reset billing --to 2026-11-01T00:00:00Z",
    "penstock groups reset billing --to 1234 --yes",
)
REDRIVE_EXAMPLES: Final = examples("penstock groups redrive billing")
RM_EXAMPLES: Final = examples("penstock groups rm billing --yes")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

ls = groups


def show(
    name: Name, *, url: ApiUrl = API_URL_DEFAULT, ca: ApiCa = None, json: Json = False
) -> None:
    """Show a consumer group: its lag, and its members with the messages that they have.

    Members are shown to clients with the right to administer clients.
    """
    group = Api(url, ca=ca).get(_path(name))
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line(group))
            sys.stdout.buffer.flush()
            return
        print_columns([(f"{key}:", value) for key, value in _figures(group)], left=2)
        if group["members"]:
            rows = [
                (
                    f"{each['unacknowledged']:,}",
                    f"{each['connection']}",
                    each["protocol"],
                    shown(each["name"]),
                )
                for each in group["members"]
            ]
            print_columns([("UNACKED", "CONNECTION", "PROTOCOL", "MEMBER"), *rows], left=2)
        typer.echo(plural(len(group["members"]), "member"))


def _figures(group: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("group", shown(group["name"])),
        ("pattern", shown(group["pattern"] or "") or "-"),
        ("offsets", ", ".join(f"{each['offset']:,}" for each in group["offsets"])),
        ("lag", f"{group['lag']:,}"),
        ("unacknowledged", f"{group['unacknowledged']:,}"),
        ("dead", f"{group['dead']:,}"),
        ("lost", f"{group['lost']:,}"),
        ("updated", group["updated"]),
    ]


def reset(
    name: Name,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="earliest, latest, an offset, a time such as 2026-11-01T00:00:00Z, or -15m.",
        ),
    ],
    yes: Yes = False,
    url: ApiUrl = API_URL_DEFAULT,
    ca: ApiCa = None,
) -> None:
    """Let a consumer group go on at another place of the log.

    Messages behind it are delivered, again if they were processed before; those before it are not.
    An offset behind the end of the log counts as the end.
    """
    if not yes:
        confirm(f"Let group {shown(name)} go on at {shown(to)}?")
    found = Api(url, ca=ca).post(f"{_path(name)}/reset?to={quote(to, safe='')}", {})
    typer.echo(f"group {shown(name)} goes on at offset {found['offset']:,}")


def redrive(name: Name, *, url: ApiUrl = API_URL_DEFAULT, ca: ApiCa = None) -> None:
    """Deliver the dead letters of a consumer group to its members again.

    The last 10,000 of them, if they are still in the log. They stay in the topic of dead letters.
    """
    found = Api(url, ca=ca).post(f"{_path(name)}/redrive", {})
    typer.echo(f"{plural(found['messages'], 'message')} delivered again")
    if found["gone"]:
        letters = plural(found["gone"], "dead letter")
        typer.echo(
            f"{letters} not delivered again: the log no longer has their messages. "
            f"Read them in the topic dead/{shown(name)}.",
            err=True,
        )


def rm(name: Name, *, yes: Yes = False, url: ApiUrl = API_URL_DEFAULT, ca: ApiCa = None) -> None:
    """Remove a consumer group and its position in the log. Its members are disconnected."""
    if not yes:
        confirm(f"Remove group {shown(name)}?")
    Api(url, ca=ca).delete(_path(name))
    typer.echo(f"group {shown(name)} removed")


def _path(name: str) -> str:
    return f"/api/groups/{quote(name, safe='')}"
