"""Print the settings of a broker, or their problems."""

import os
import sys
from pathlib import Path

import typer

from penstock.cli.common.columns import plural
from penstock.cli.common.failure import EXIT_INCOMPLETE
from penstock.cli.common.output import json_line, quiet_pipe
from penstock.cli.config.settings import settings, toml_line
from penstock.errors import ConfigError, InvalidConfig
from penstock.server.config_environment import CONFIG_VARIABLE
from penstock.server.config_loading import load

__all__ = ["check_settings", "show_settings"]


def show_settings(file: Path | None, *, json: bool) -> None:
    """Print every setting and its source; raise InvalidConfig."""
    found = settings(file, os.environ)
    with quiet_pipe():
        if json:
            listed = {each.key: {"value": each.value, "source": each.source} for each in found}
            sys.stdout.buffer.write(json_line({"file": _name(file), "settings": listed}))
        else:
            typer.echo("\n".join(toml_line(each) for each in found))


def check_settings(file: Path | None, *, json: bool) -> None:
    """Print every problem; end with EXIT_INCOMPLETE if there are any."""
    found: tuple[ConfigError, ...] = ()
    try:
        load(file, environment=os.environ)
    except InvalidConfig as error:
        found = error.problems
    with quiet_pipe():
        if json:
            listed = [
                {"source": each.source, "key": each.key, "problem": each.problem} for each in found
            ]
            document = {"right": not found, "file": _name(file), "problems": listed}
            sys.stdout.buffer.write(json_line(document))
        elif found:
            for each in found:
                typer.echo(str(each))
            typer.echo(f"{plural(len(found), 'problem')}.")
        else:
            typer.echo("The configuration is valid.")
    if found:
        raise typer.Exit(EXIT_INCOMPLETE)


def _name(file: Path | None) -> str | None:
    return str(file) if file else os.environ.get(CONFIG_VARIABLE) or None
