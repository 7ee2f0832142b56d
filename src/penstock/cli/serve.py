"""`penstock serve`: the broker."""

import os
from pathlib import Path
from typing import Annotated

import typer

import penstock

__all__ = ["serve"]


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

    Without options: all protocols on tcp://127.0.0.1:7000, herald on udp://127.0.0.1:7000 and
    fleximq on ws://127.0.0.1:7080/ws.
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
            durability=durability,
        )

    found = read()
    if check:
        places = ", ".join(listener.address.location for listener in found.listener)
        typer.echo(f"The configuration is right. It listens on {places}.")
        return
    import uvloop  # noqa: PLC0415

    from penstock.cli.logs import log_to_stderr  # noqa: PLC0415
    from penstock.server.banner import banner  # noqa: PLC0415
    from penstock.server.run import Running  # noqa: PLC0415
    from penstock.server.run import serve as run  # noqa: PLC0415

    def announce(running: Running) -> None:
        typer.echo(banner(running.config, running.addresses, version=penstock.__version__))

    log_to_stderr()
    uvloop.run(run(found, announce=announce, reread=read))
