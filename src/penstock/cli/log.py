"""`penstock log`: commands that look at a log on disk, whether a broker writes it or not."""

import typer

from penstock.cli.log_export import export
from penstock.cli.log_ls import ls
from penstock.cli.log_read import read
from penstock.cli.log_verify import verify

__all__ = ["log_commands"]

log_commands = typer.Typer(
    help="Look at a log on disk: list, read, verify, export. Nothing in it is changed.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
log_commands.command("ls")(ls)
log_commands.command("read")(read)
log_commands.command("verify")(verify)
log_commands.command("export")(export)
