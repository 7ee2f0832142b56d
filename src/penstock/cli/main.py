"""The `penstock` command: its subcommands, and how it ends.

It ends with 0 when all went well, with 2 and one line on standard error when an operator must act,
with 130 when it was interrupted, and with 1 and a traceback when the fault is ours. Commands end
with 1 also when they did what could be done and that is not all: part of a log cannot be read, too
few messages came, some were lost, a configuration has problems.
"""

import sys
from typing import Annotated, Final

import typer

import penstock
from penstock.cli.bench import BENCH_EXAMPLES, bench
from penstock.cli.clients import CLIENTS_EXAMPLES, clients
from penstock.cli.config import config_commands
from penstock.cli.conform import CONFORM_EXAMPLES, conform
from penstock.cli.decode import DECODE_EXAMPLES, decode
from penstock.cli.hash_key import hash_key
from penstock.cli.hash_password import hash_password
from penstock.cli.log import log_commands
from penstock.cli.pipeline import pipeline_commands
from penstock.cli.pub import PUB_EXAMPLES, pub
from penstock.cli.reply import REPLY_EXAMPLES, reply
from penstock.cli.req import REQ_EXAMPLES, req
from penstock.cli.serve import serve
from penstock.cli.sql import sql
from penstock.cli.sub import SUB_EXAMPLES, sub
from penstock.cli.top import TOP_EXAMPLES, top
from penstock.cli.topics import TOPICS_EXAMPLES, topics
from penstock.errors import LogError, OperatorError

__all__ = ["main"]

EXIT_OPERATOR: Final = 2
EXIT_INTERRUPTED: Final = 130

# BadParameter is a UsageError is a ClickException: what the parser raises for a wrong command line.
# Newer versions of typer bring the parser along, older ones import it, so it is found by its heir.
_PARSER_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="penstock",
    help="One message broker for five wire protocols.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve)
app.command("pub", epilog=PUB_EXAMPLES)(pub)
app.command("sub", epilog=SUB_EXAMPLES)(sub)
app.command("req", epilog=REQ_EXAMPLES)(req)
app.command("reply", epilog=REPLY_EXAMPLES)(reply)
app.command("bench", epilog=BENCH_EXAMPLES)(bench)
app.command("conform", epilog=CONFORM_EXAMPLES)(conform)
app.command("decode", epilog=DECODE_EXAMPLES)(decode)
app.command("topics", epilog=TOPICS_EXAMPLES)(topics)
app.command("clients", epilog=CLIENTS_EXAMPLES)(clients)
app.command("top", epilog=TOP_EXAMPLES)(top)
app.add_typer(config_commands, name="config")
app.command("hash-password")(hash_password)
app.command("hash-key")(hash_key)
app.add_typer(log_commands, name="log")
app.add_typer(pipeline_commands, name="pipeline")
app.command("sql")(sql)


def _print_version(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """One message broker for five wire protocols."""


def main() -> None:
    """Run the command line of the process, and end the process."""
    command = typer.main.get_command(app)
    try:
        code = command.main(prog_name="penstock", standalone_mode=False)
    except (OperatorError, LogError) as error:
        _fail(str(error))
    except _PARSER_ERROR as error:
        _fail_to_parse(error)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail_to_parse(error: Exception) -> None:
    """Say what is wrong with a command line; where a command is missing, which there are."""
    text: str = getattr(error, "format_message", error.__str__)()
    if text.startswith("Usage: "):
        typer.echo(text, err=True)
        sys.exit(EXIT_OPERATOR)
    command = getattr(getattr(error, "ctx", None), "command_path", "penstock")
    _fail(f"{text.rstrip('.')}. See: {command} --help")


def _fail(text: str) -> None:
    typer.echo(f"penstock: {' '.join(text.split())}", err=True)
    sys.exit(EXIT_OPERATOR)
