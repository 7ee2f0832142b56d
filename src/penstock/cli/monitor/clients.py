"""`penstock clients`: the clients of a running broker."""

import sys
from typing import Annotated, Any, Final

import typer

from penstock.cli.common.columns import count_text, plural, print_columns, short_size
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl
from penstock.cli.protocol_help import LABELS, PROTOCOL_CHOICE

__all__ = [
    "CLIENTS_EXAMPLES",
    "CLIENT_COLUMNS",
    "CLIENT_COLUMNS_LEFT",
    "client_row",
    "clients",
]

CLIENTS_EXAMPLES: Final = examples(
    "penstock clients",
    "penstock clients --slow",
    "penstock clients kick 17",
    "penstock clients --protocol herald --json | jq '.clients | length'",
)
CLIENT_COLUMNS: Final = (
    "CONNECTION", "SUBSCRIPTIONS", "IN", "OUT", "WAITING", "BEHIND", "STATE", "PROTOCOL",
    "ADDRESS", "NAME",
)  # fmt: skip
CLIENT_COLUMNS_LEFT: Final = 4


def clients(
    *,
    url: ApiUrl = API_URL_DEFAULT,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar=PROTOCOL_CHOICE, help="Only clients of this protocol.", show_default=False
        ),
    ] = None,
    slow: Annotated[bool, typer.Option("--slow", help="Only clients that do not keep up.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="List at most so many clients.")] = 10_000,
    ca: ApiCa = None,
    json: Json = False,
) -> None:
    """List connected clients with the messages they sent and received, and those waiting.

    `penstock clients kick` disconnects clients.
    """
    if protocol not in (None, *LABELS):
        problem = f"{protocol!r} is none of {', '.join(LABELS)}."
        raise typer.BadParameter(problem, param_hint="--protocol")
    api = Api(url, ca=ca)
    wanted = {"protocol": protocol, "slow": "true" if slow else None}
    found = list(api.pages("/api/clients", "clients", wanted, limit=limit))
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line({"clients": found}))
            sys.stdout.buffer.flush()
            return
        if found:
            print_columns([CLIENT_COLUMNS, *map(client_row, found)], left=CLIENT_COLUMNS_LEFT)
        typer.echo(plural(len(found), "client"))


def client_row(client: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a client, with the cells of CLIENT_COLUMNS."""
    return (
        str(client["connection"]),
        f"{client['subscriptions']:,}",
        count_text(client["received_messages"]),
        count_text(client["sent_messages"]),
        short_size(client["waiting_bytes"]),
        count_text(client["behind"]),
        "slow" if client["slow"] else "live",
        client["protocol"],
        shown(client["address"]),
        shown(client["name"]),
    )
