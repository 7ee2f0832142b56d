"""The options of `penstock serve`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.lazy_command import examples

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
            help="Address of a listener, such as tcp://127.0.0.1:7000; may be repeated.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the log.", show_default=False),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address of the HTTP API.", show_default=False),
    ] = None,
    flight: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address of Arrow Flight.",
            show_default=False,
        ),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="fsync|os|memory",
            help="When a message is acknowledged: synced to disk, written, or in memory.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep the log on Kafka: kafka://HOST:PORT/TOPIC?node=N.",
            show_default=False,
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Run the console beside it, in its own process.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration and exit.")
    ] = False,
) -> None:
    """Run the broker until SIGINT or SIGTERM; SIGHUP reloads the configuration.

    Defaults: all protocols on tcp://127.0.0.1:7000, herald on udp://127.0.0.1:7000, fleximq on
    ws://127.0.0.1:7080/ws, the HTTP API on 127.0.0.1:7080, Arrow Flight on 127.0.0.1:7090.
    """
    from penstock.server.allocator import configure_allocators  # noqa: PLC0415  (--help)

    configure_allocators()  # before Arrow is imported
    from penstock.cli.serving import check_configuration, run_broker  # noqa: PLC0415  (--help)

    options = {
        "listen": listen or (),
        "data": data,
        "http": http,
        "flight": flight,
        "durability": durability,
        "storage": storage,
    }
    if check:
        check_configuration(config, options)
    else:
        run_broker(config, options, console=console)
