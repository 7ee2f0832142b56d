"""`penstock config`: which settings a broker would go by, and whether they are right."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.client_options import EXIT_INCOMPLETE, Json, examples, json_line
from penstock.cli.columns import plural
from penstock.cli.log_options import quiet_pipe

__all__ = ["config_commands"]

config_commands = typer.Typer(
    help="Show and check what a broker is set to.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "--config",
        metavar="FILE",
        help="A penstock.toml; without it the one that PENSTOCK_CONFIG names, if any.",
        show_default=False,
    ),
]


SHOW_EXAMPLES: Final = examples(
    "penstock config show --file penstock.toml",
    "penstock config show | grep -v '# default'",
    "penstock config show --json | jq '.settings[\"broker.durability\"]'",
)


@config_commands.command("show", short_help="Print every setting.", epilog=SHOW_EXAMPLES)
def show(*, file: File = None, json: Json = False) -> None:
    """Print every setting a broker would go by, and where it came from. Secrets are hidden.

    The output is TOML, a line for each setting, its source behind a #.
    """
    from penstock.cli.config_settings import settings, toml_line  # noqa: PLC0415
    from penstock.server.config_environment import CONFIG_VARIABLE  # noqa: PLC0415

    found = settings(file, os.environ)
    named = str(file) if file else os.environ.get(CONFIG_VARIABLE) or None
    with quiet_pipe():
        if json:
            document: dict[str, Any] = {
                "file": named,
                "settings": {
                    each.key: {"value": each.value, "source": each.source} for each in found
                },
            }
            sys.stdout.buffer.write(json_line(document))
        else:
            typer.echo("\n".join(toml_line(each) for each in found))


CHECK_EXAMPLES: Final = examples(
    "penstock config check --file penstock.toml",
    "penstock config check --json | jq -r '.problems[].key'",
)


@config_commands.command("check", short_help="Print every problem.", epilog=CHECK_EXAMPLES)
def check(*, file: File = None, json: Json = False) -> None:
    """Check file and environment: 0 if all is right, else 1 and a line for each problem.

    A line has the source, the key, and what is allowed. Lists count from 0.
    """
    from penstock.cli.config_problems import problems  # noqa: PLC0415
    from penstock.server.config_environment import CONFIG_VARIABLE  # noqa: PLC0415

    found = problems(file, os.environ)
    named = str(file) if file else os.environ.get(CONFIG_VARIABLE) or None
    with quiet_pipe():
        if json:
            listed = [
                {"source": each.source, "key": each.key, "problem": each.problem} for each in found
            ]
            sys.stdout.buffer.write(
                json_line({"right": not found, "file": named, "problems": listed})
            )
        elif found:
            for each in found:
                typer.echo(str(each))
            typer.echo(f"{plural(len(found), 'problem')}.")
        else:
            typer.echo("The configuration is right.")
    if found:
        raise typer.Exit(EXIT_INCOMPLETE)
