"""`penstock drain`: disconnect all clients of a running broker, and end it."""

from typing import Annotated, Final
from urllib.parse import urlencode

import typer

from penstock.cli.common.columns import plural
from penstock.cli.common.failure import CommandFailed
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl
from penstock.cli.monitor.kept_connection import KeptConnection
from penstock.limits import HTTP_DRAIN_SECONDS_MAX

__all__ = ["DRAIN_EXAMPLES", "drain"]

DRAIN_EXAMPLES: Final = examples("penstock drain", "penstock drain --wait 60")
_MARGIN_SECONDS: Final = 2.0
"""For the end of the process, after the broker's own deadline."""


def drain(
    *,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=HTTP_DRAIN_SECONDS_MAX,
            metavar="SECONDS",
            help="How long it may take, instead of limits.stop_seconds_max.",
            show_default=False,
        ),
    ] = None,
    url: ApiUrl = API_URL_DEFAULT,
    ca: ApiCa = None,
) -> None:
    """Take no new clients, disconnect the others, and end the broker, which exits with 0.

    Clients get what was written to them, and can connect to another broker or to the next process.
    Messages that members of consumer groups have not acknowledged go to other members.
    """
    query = "" if wait is None else f"?{urlencode({'seconds': wait})}"
    with KeptConnection() as kept:
        found = Api(url, ca=ca, kept=kept).post(f"/api/drain{query}", {})
        seconds = found["seconds_max"]
        typer.echo(f"draining {plural(found['clients'], 'client')}, for at most {seconds:g} s")
        if not kept.wait_for_end(seconds + _MARGIN_SECONDS):
            advice = "see its log, or end its process"
            raise CommandFailed(f"the broker at {url} has not ended", advice)
    typer.echo("the broker has ended")
