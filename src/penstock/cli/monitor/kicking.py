"""`penstock clients kick`: disconnect clients of a running broker."""

from typing import Annotated, Final

import typer

from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl

__all__ = ["KICK_EXAMPLES", "kick"]

KICK_EXAMPLES: Final = examples("penstock clients kick 17", "penstock clients kick 17 18")


def kick(
    connections: Annotated[
        list[int],
        typer.Argument(metavar="CONNECTION...", min=0, help="As `penstock clients` shows them."),
    ],
    *,
    url: ApiUrl = API_URL_DEFAULT,
    ca: ApiCa = None,
) -> None:
    """Disconnect clients. A client may connect again; take its rights away to prevent that."""
    api = Api(url, ca=ca)
    for connection in connections:
        found = api.delete(f"/api/clients/{connection}")
        name = shown(found["name"]) or "(no name)"
        typer.echo(f"{connection} disconnected: {name}, {shown(found['principal'])}")
