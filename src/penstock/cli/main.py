"""The `penstock` command: its subcommands, and how it ends.

It ends with 0 when all went well, with 2 and one line on standard error when an operator must act,
with 130 when it was interrupted, and with 70 and one line when the fault is ours. Commands end with
1 when they did what could be done and that is not all: part of a log cannot be read, too few
messages came, some were lost, a configuration has problems.
"""

import errno
import os
import sys
from typing import Annotated, Final, NoReturn, TextIO, cast

try:
    import typer

    import penstock
    from penstock.cli.arguments import guard
    from penstock.cli.bench import BENCH_EXAMPLES, bench
    from penstock.cli.client_options import CommandFailed
    from penstock.cli.clients import CLIENTS_EXAMPLES, clients
    from penstock.cli.config import config_commands
    from penstock.cli.conform import CONFORM_EXAMPLES, conform
    from penstock.cli.decode import DECODE_EXAMPLES, decode
    from penstock.cli.hash_key import KEY_EXAMPLES, hash_key
    from penstock.cli.hash_password import PASSWORD_EXAMPLES, hash_password
    from penstock.cli.log import log_commands
    from penstock.cli.pipeline import pipeline_commands
    from penstock.cli.pub import PUB_EXAMPLES, pub
    from penstock.cli.reply import REPLY_EXAMPLES, reply
    from penstock.cli.req import REQ_EXAMPLES, req
    from penstock.cli.serve import SERVE_EXAMPLES, serve
    from penstock.cli.sql import SQL_EXAMPLES, sql
    from penstock.cli.sub import SUB_EXAMPLES, sub
    from penstock.cli.top import TOP_EXAMPLES, top
    from penstock.cli.topics import TOPICS_EXAMPLES, topics
    from penstock.errors import LogError, OperatorError
except KeyboardInterrupt:  # an interrupt while all this is imported, a quarter of a second
    sys.exit(130)

__all__ = ["main"]

EXIT_OPERATOR: Final = 2
EXIT_FAULT: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED: Final = 130
DEBUG_VARIABLE: Final = "PENSTOCK_DEBUG"
_LASTING: Final = frozenset({"serve", "pipeline"})
"""Commands that run until they are stopped."""

# BadParameter is a UsageError is a ClickException: what the parser raises for a wrong command line.
# Newer versions of typer bring the parser along, older ones import it, so it is found by its heir.
_PARSER_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="penstock",
    help="One message broker for five wire protocols.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _function, _does, _examples in (
    ("serve", serve, "Run the broker.", SERVE_EXAMPLES),
    ("pub", pub, "Send a value to a topic.", PUB_EXAMPLES),
    ("sub", sub, "Print messages as they come.", SUB_EXAMPLES),
    ("req", req, "Ask a client or the broker.", REQ_EXAMPLES),
    ("reply", reply, "Answer requests, and print them.", REPLY_EXAMPLES),
    ("topics", topics, "List topics, with what came for them.", TOPICS_EXAMPLES),
    ("clients", clients, "List who is connected.", CLIENTS_EXAMPLES),
    ("top", top, "Watch what flows, as it flows.", TOP_EXAMPLES),
    ("sql", sql, "Ask topics and tables with SQL.", SQL_EXAMPLES),
    ("bench", bench, "Measure throughput and latency.", BENCH_EXAMPLES),
    ("conform", conform, "Check a server of a protocol.", CONFORM_EXAMPLES),
    ("decode", decode, "Explain a capture, field by field.", DECODE_EXAMPLES),
    ("hash-password", hash_password, "Hash a password for a configuration.", PASSWORD_EXAMPLES),
    ("hash-key", hash_key, "Hash a key for a configuration.", KEY_EXAMPLES),
):
    app.command(_name, short_help=_does, epilog=_examples)(_function)
app.add_typer(log_commands, name="log", short_help="Look at a log on disk.")
app.add_typer(pipeline_commands, name="pipeline", short_help="Keep tables of what the log holds.")
app.add_typer(config_commands, name="config", short_help="Show and check settings.")
guard(app)


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


class _ClosedInput:
    """Standard input that the shell closed: whoever wants to read it fails."""

    def __getattr__(self, name: str) -> NoReturn:
        raise CommandFailed("standard input is closed", "give it something to read")


def main() -> None:
    """Run the command line of the process, and end the process."""
    if sys.stdout is None:  # the shell closed it
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stdin is None:
        sys.stdin = cast("TextIO", _ClosedInput())
    try:
        command = typer.main.get_command(app)
        code = command.main(prog_name="penstock", standalone_mode=False)
    except (OperatorError, LogError) as error:
        _fail(str(error))
    except _PARSER_ERROR as error:
        _fail_to_parse(error)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            # What is left of the output is flushed at the end: to nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(f"cannot write the output: {os.strerror(error.errno).lower()}; make room for it")
        _fail_by_fault(error)
    sys.exit(code if isinstance(code, int) else 0)


def _fail_to_parse(error: Exception) -> NoReturn:
    text: str = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "penstock")
    if text.startswith("Usage: ") or (text == "Missing command." and context is not None):
        typer.echo(context.get_help() if context is not None else text, err=True)
        sys.exit(EXIT_OPERATOR)
    text = text.rstrip(".")
    _fail(f"{text}{'' if text.endswith('?') else '.'} See: {command} --help")


def _fail_by_fault(error: Exception) -> NoReturn:
    """Say that Penstock is at fault, in one line; where, if the environment asks for it.

    What has run for days cannot be asked again, and says where at once.
    """
    if os.environ.get(DEBUG_VARIABLE) == "1" or _LASTING.intersection(sys.argv[1:2]):
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    text = f"a fault of Penstock's: {type(error).__name__}: {error}"
    _fail(f"{text}; {DEBUG_VARIABLE}=1 shows where", EXIT_FAULT)


def _fail(text: str, code: int = EXIT_OPERATOR) -> NoReturn:
    typer.echo(f"penstock: {' '.join(text.split())}", err=True)
    sys.exit(code)
