"""Questions before a command removes something."""

import sys

import typer

from penstock.cli.common.failure import CommandFailed

__all__ = ["confirm"]


def confirm(question: str) -> None:
    """Ask on the terminal; raise Abort unless the answer is yes, CommandFailed without one."""
    try:
        is_confirmed = typer.confirm(question)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)  # behind the question
        raise CommandFailed("there is no terminal to ask: confirm it with --yes") from None
    if not is_confirmed:
        raise typer.Abort
