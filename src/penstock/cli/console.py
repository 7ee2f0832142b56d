"""The options of `penstock console`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, ApiCa, ApiUrl

__all__ = ["CONSOLE_EXAMPLES", "CONSOLE_LISTEN_DEFAULT", "console"]

CONSOLE_LISTEN_DEFAULT: Final = "127.0.0.1:7070"
CONSOLE_EXAMPLES: Final = examples(
    "penstock console",
    "penstock console --url https://broker.example:7443 --listen 127.0.0.1:8070",
    "penstock console --warehouse warehouse",
)


def console(
    *,
    url: ApiUrl = API_URL_DEFAULT,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Address of the console.", envvar="PENSTOCK_CONSOLE_LISTEN"
        ),
    ] = CONSOLE_LISTEN_DEFAULT,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which browsers reach it; only those of this machine without it.",
            show_default=False,
        ),
    ] = None,
    warehouse: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of a pipeline's tables, to show them.", show_default=False
        ),
    ] = None,
    ca: ApiCa = None,
) -> None:
    """Show a broker in the browser, until SIGINT or SIGTERM. It asks the HTTP API for everything.

    A broker that wants credentials gets those that are entered at the log-in page. For charts that
    begin before the first log-in, set PENSTOCK_TOKEN, or PENSTOCK_USERNAME and PENSTOCK_PASSWORD.
    """
    from penstock.cli.console_running import run  # noqa: PLC0415  (--help stays fast)

    run(url, listen, hosts=host or [], warehouse=warehouse, ca=ca)
