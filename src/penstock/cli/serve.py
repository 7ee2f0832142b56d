"""`penstock serve`: the broker."""

import importlib.abc
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

import penstock
from penstock.cli.client_options import examples

__all__ = ["SERVE_EXAMPLES", "serve"]

SERVE_EXAMPLES: Final = examples(
    "penstock serve",
    "penstock serve --listen tcp://127.0.0.1:7001 --data /tmp/try",
    "penstock serve --check --config penstock.toml",
)


def serve(
    *,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A penstock.toml.", show_default=False)
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where clients connect, such as tcp://127.0.0.1:7000; may be given again.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where messages are kept.", show_default=False),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where HTTP is answered.", show_default=False),
    ] = None,
    flight: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where tables are served by Arrow Flight.",
            show_default=False,
        ),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="fsync|os|memory",
            help="When a message counts as kept.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration and end.")
    ] = False,
) -> None:
    """Run the broker until SIGINT or SIGTERM; SIGHUP reads the configuration again.

    Without options: all protocols on tcp://127.0.0.1:7000, herald on udp://127.0.0.1:7000,
    fleximq on ws://127.0.0.1:7080/ws, and tables by Arrow Flight on 127.0.0.1:7090.
    """
    from penstock.server.config import Config  # noqa: PLC0415  (so that --help starts fast)
    from penstock.server.config_loading import load  # noqa: PLC0415

    def read() -> Config:
        return load(
            config,
            environment=os.environ,
            listen=listen or (),
            data=data,
            http=http,
            flight=flight,
            durability=durability,
        )

    found = read()
    if check:
        places = ", ".join(listener.address.location for listener in found.listener)
        typer.echo(f"The configuration is right. It listens on {places}.")
        return
    import uvloop  # noqa: PLC0415  (so that --help starts fast)

    from penstock.cli.logs import log_to_stderr  # noqa: PLC0415
    from penstock.server.banner import banner  # noqa: PLC0415
    from penstock.server.run import Running  # noqa: PLC0415
    from penstock.server.run import serve as run  # noqa: PLC0415

    def announce(running: Running) -> None:
        typer.echo(
            banner(
                running.config,
                running.addresses,
                version=penstock.__version__,
                flight=running.flight,
                http=running.http,
            )
        )

    log_to_stderr()
    _do_without_tables_of_others()
    uvloop.run(run(found, announce=announce, reread=read))


class _Without(importlib.abc.MetaPathFinder):
    """Says that modules are not there, for the rest of the process."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in self._names:
            raise ModuleNotFoundError(fullname)


def _do_without_tables_of_others() -> None:
    """Keep pyarrow from importing NumPy and pandas, where they are: 80 MiB that no broker needs."""
    if "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, _Without("numpy", "pandas"))
