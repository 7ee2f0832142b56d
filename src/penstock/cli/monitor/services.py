"""`penstock services`: the services by name of a running broker."""

import sys
from typing import Annotated, Final

import typer

from penstock.cli.common.columns import plural, print_columns
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl

__all__ = ["SERVICES_EXAMPLES", "services"]

SERVICES_EXAMPLES: Final = examples(
    "penstock services", "penstock services --json | jq '.services[].path'"
)
_COLUMNS: Final = ("SERVERS", "SUBSCRIBERS", "PENDING", "NODES", "PATH")


def services(
    *,
    url: ApiUrl = API_URL_DEFAULT,
    limit: Annotated[int, typer.Option(min=1, help="List at most so many services.")] = 10_000,
    ca: ApiCa = None,
    json: Json = False,
) -> None:
    """List the paths that clients serve by name.

    SERVERS have registered the path, SUBSCRIBERS subscribe to its topic. PENDING are requests that
    the servers of this node have not answered, NODES are those with servers or subscribers.
    """
    found = list(Api(url, ca=ca).pages("/api/services", "services", limit=limit))
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line({"services": found}))
            sys.stdout.buffer.flush()
            return
        if found:
            rows = [
                (
                    f"{each['servers']:,}",
                    f"{each['subscribers']:,}",
                    f"{each['pending']:,}",
                    ",".join(str(place["node"]) for place in each["nodes"]),
                    shown(each["path"]),
                )
                for each in found
            ]
            print_columns([_COLUMNS, *rows], left=1)
        typer.echo(plural(len(found), "service"))
