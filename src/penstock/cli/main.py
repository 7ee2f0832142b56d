"""The `penstock` command: its subcommands and its exit codes.

The exit code is 0 for success, 2 with one line on standard error if the operator must act, 75 if
Kafka did not answer when the broker started, 130 if interrupted, and 70 with one line for a bug in
Penstock. It is 1 if a command did only part of its
work or found problems: part of a log cannot be read, too few messages arrived, messages were lost,
a configuration has problems.
"""

import errno
import os
import sys
import traceback
from typing import Annotated, Final, NoReturn, TextIO, cast

try:
    import typer
    from typer.core import TyperGroup

    import penstock
    from penstock.cli.common.extras import missing_extra
    from penstock.cli.common.failure import EXIT_INTERRUPTED, CommandFailed
    from penstock.cli.lazy_command import DefaultGroup, LazyCommand, add_commands
    from penstock.errors import InvalidConfig, KafkaNotReached, LogError, OperatorError
except KeyboardInterrupt:  # an interrupt during these imports
    sys.exit(130)

__all__ = ["command_line", "main"]

EXIT_OPERATOR: Final = 2
EXIT_FAULT: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_TEMPORARY: Final = 75  # EX_TEMPFAIL: another start may succeed
DEBUG_VARIABLE: Final = "PENSTOCK_DEBUG"
_LASTING: Final = frozenset({"serve", "pipeline", "console"})
"""Commands that run until they are stopped."""

# ClickException, the parser's base error. Newer versions of typer contain the parser, older ones
# import it, so it is found as a base class of BadParameter.
_PARSER_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="penstock",
    help="One message broker for five wire protocols.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def command_line() -> TyperGroup:
    """Return the command with all its subcommands; none of them is imported yet."""
    group = cast("TyperGroup", typer.main.get_command(app))
    add_commands(
        group,
        ("serve", "Run the broker.", "penstock.cli.serve"),
        ("pub", "Publish a value to a topic.", "penstock.cli.messages.pub"),
        ("sub", "Print messages as they arrive.", "penstock.cli.messages.sub"),
        ("req", "Send a request to a service or a client.", "penstock.cli.messages.req"),
        ("reply", "Serve a path and print its requests.", "penstock.cli.messages.reply"),
    )
    topics = DefaultGroup(
        LazyCommand("topics", "List topics with their traffic.", "penstock.cli.monitor.topics")
    )
    add_commands(topics, ("delete", "Delete topics.", "penstock.cli.monitor.topic_deletion"))
    group.add_command(topics)
    groups = DefaultGroup(
        LazyCommand("groups", "List consumer groups with their lag.", "penstock.cli.monitor.groups")
    )
    add_commands(
        groups,
        ("ls", "List consumer groups.", "penstock.cli.monitor.group_commands"),
        ("show", "Show a group and its members.", "penstock.cli.monitor.group_commands"),
        ("reset", "Go on at another place.", "penstock.cli.monitor.group_commands"),
        ("redrive", "Deliver dead letters again.", "penstock.cli.monitor.group_commands"),
        ("rm", "Remove a group.", "penstock.cli.monitor.group_commands"),
    )
    clients = DefaultGroup(
        LazyCommand("clients", "List connected clients.", "penstock.cli.monitor.clients")
    )
    add_commands(clients, ("kick", "Disconnect clients.", "penstock.cli.monitor.kicking"))
    group.add_command(clients)
    group.add_command(groups)
    add_commands(
        group,
        ("services", "List services by name.", "penstock.cli.monitor.services"),
        ("limits", "Show limits and quotas.", "penstock.cli.monitor.limits"),
        ("top", "Show live traffic.", "penstock.cli.monitor.top"),
        ("drain", "Disconnect all clients and stop.", "penstock.cli.monitor.draining"),
        ("console", "Show a broker in the browser.", "penstock.cli.console"),
        ("sql", "Query topics and tables with SQL.", "penstock.cli.spark.sql"),
        ("bench", "Measure throughput and latency.", "penstock.cli.bench.command"),
        ("conform", "Test a server for conformance.", "penstock.cli.conform"),
        ("decode", "Explain a capture, field by field.", "penstock.cli.decode.command"),
        ("hash-password", "Hash a password for a configuration.", "penstock.cli.hashes"),
        ("hash-key", "Hash a key for a configuration.", "penstock.cli.hashes"),
    )
    log = _group(group, "log", "Inspect a log on disk.", "List, read, verify or move a log.")
    add_commands(
        log,
        ("ls", "List segments and their faults.", "penstock.cli.log.commands"),
        ("read", "Print messages.", "penstock.cli.log.commands"),
        ("verify", "Check every byte.", "penstock.cli.log.commands"),
        ("export", "Write messages to a Parquet file.", "penstock.cli.log.commands"),
        ("import", "Copy a log from Kafka.", "penstock.cli.log.commands"),
    )
    pipeline = _group(
        group, "pipeline", "Maintain tables from the log.", "Bronze, silver and gold tables."
    )
    add_commands(
        pipeline,
        ("run", "Keep the tables up to date.", "penstock.cli.spark.pipeline"),
        ("status", "Show tables and progress.", "penstock.cli.spark.pipeline"),
        ("rebuild", "Compute a table again.", "penstock.cli.spark.pipeline"),
        ("compact", "Merge small files of tables.", "penstock.cli.spark.pipeline"),
        ("vacuum", "Delete files of old versions.", "penstock.cli.spark.pipeline"),
        ("check", "Compare tables with their logs.", "penstock.cli.spark.pipeline"),
        ("replay-dead-letters", "Decode dead letters again.", "penstock.cli.spark.pipeline"),
    )
    spark = _group(group, "spark", "Prepare a Spark cluster.", "Prepare a Spark cluster.")
    add_commands(
        spark,
        ("package", "Write an archive for executors.", "penstock.cli.spark.package"),
    )
    config = _group(group, "config", "Show and check settings.", "Show and check settings.")
    add_commands(
        config,
        ("show", "Print every setting.", "penstock.cli.config.commands"),
        ("check", "Print every problem.", "penstock.cli.config.commands"),
    )
    user = _group(group, "user", "Manage users.", "Credentials in a file of their own.")
    add_commands(
        user,
        ("add", "Add a user with a password.", "penstock.cli.users.commands"),
        ("passwd", "Change a password.", "penstock.cli.users.commands"),
        ("token", "Replace a token.", "penstock.cli.users.commands"),
        ("key", "Replace a key.", "penstock.cli.users.commands"),
        ("list", "List users.", "penstock.cli.users.commands"),
        ("remove", "Remove a user.", "penstock.cli.users.commands"),
    )
    return group


def _group(parent: TyperGroup, name: str, short_help: str, text: str) -> TyperGroup:
    group = TyperGroup(
        name=name, help=text, short_help=short_help, no_args_is_help=True, rich_markup_mode=None
    )
    parent.add_command(group)
    return group


class _ClosedInput:
    """Standard input that the shell closed: reading it raises CommandFailed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise CommandFailed("standard input is closed", "redirect a file or a pipe to it")


def main() -> None:
    """Run the command line of the process, then exit."""
    if sys.stdout is None:  # the shell closed it
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stdin is None:
        sys.stdin = cast("TextIO", _ClosedInput())
    try:
        code = command_line().main(prog_name="penstock", standalone_mode=False)
    except InvalidConfig as error:
        for problem in error.problems[:-1]:
            _print_error(str(problem))
        _fail(str(error.problems[-1]))
    except KafkaNotReached as error:
        _fail(str(error), EXIT_TEMPORARY)
    except (OperatorError, LogError) as error:
        _fail(str(error))
    except _PARSER_ERROR as error:
        _fail_to_parse(error)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            # The rest of the output is flushed at exit; discard it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(f"cannot write the output: {os.strerror(error.errno).lower()}; free some space")
        missing = missing_extra(error)
        if missing is not None:
            _fail(missing)
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
    """Report a bug in Penstock in one line, with a traceback if DEBUG_VARIABLE is set.

    Commands that run until stopped always print the traceback: the bug may not occur again.
    """
    if os.environ.get(DEBUG_VARIABLE) == "1" or _LASTING.intersection(sys.argv[1:2]):
        traceback.print_exception(error)
    text = f"internal error: {type(error).__name__}: {error}"
    _fail(f"{text}; {DEBUG_VARIABLE}=1 shows where", EXIT_FAULT)


def _fail(text: str, code: int = EXIT_OPERATOR) -> NoReturn:
    _print_error(text)
    sys.exit(code)


def _print_error(text: str) -> None:
    typer.echo(f"penstock: {' '.join(text.split())}", err=True)
