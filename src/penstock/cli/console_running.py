"""Run the console in this process."""

from collections.abc import Sequence
from pathlib import Path

import typer

from penstock.cli.common.failure import CommandFailed
from penstock.cli.monitor.api import Api, authorization

__all__ = ["run"]


def run(
    url: str, listen: str, *, hosts: Sequence[str], warehouse: Path | None, ca: Path | None
) -> None:
    """Run the console until a signal; raise CommandFailed."""
    Api(url, ca=ca)  # raises for a wrong URL or CA
    host, port = _place(listen)
    try:
        from penstock.console.api import BrokerApi  # noqa: PLC0415  (of an extra)
        from penstock.console.server import bind, run_console  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the console needs {error.name}", "install the extra `console`"
        ) from None
    try:
        listening = bind(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandFailed(f"cannot listen on {listen}: {reason}", "give --listen") from None
    shown, real = listening.getsockname()[:2]
    where = f"[{shown}]" if ":" in shown else shown
    run_console(
        BrokerApi(url, authorization=authorization().get("Authorization"), ca=ca),
        listening,
        hosts=hosts,
        warehouse=warehouse,
        announce=lambda: typer.echo(f"The console of {url} is at http://{where}:{real}/"),
    )


def _place(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise CommandFailed(
            f"--listen: {listen!r} is no HOST:PORT", "give one such as 127.0.0.1:7070"
        )
    return host.strip("[]"), int(port)
