"""`penstock log`: commands that look at a log on disk, whether a broker writes it or not."""

import typer

from penstock.cli.client_options import examples
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
log_commands.command(
    "ls",
    short_help="List segments, and what is wrong with them.",
    epilog=examples("penstock log ls", "penstock log ls --data /var/lib/penstock --topics"),
)(ls)
log_commands.command(
    "read",
    short_help="Print messages.",
    epilog=examples(
        "penstock log read 'sensors/#' --from -15m",
        "penstock log read --from 2026-11-01 --count 10 --json",
    ),
)(read)
log_commands.command(
    "verify",
    short_help="Check every byte.",
    epilog=examples("penstock log verify", "penstock log verify --data backup --json"),
)(verify)
log_commands.command(
    "export",
    short_help="Write messages to a Parquet file.",
    epilog=examples("penstock log export out.parquet 'sensors/#' --from -1d"),
)(export)
