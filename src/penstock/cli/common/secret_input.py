"""Secrets that are typed or piped in, never given as arguments."""

import sys

import typer

from penstock.cli.common.arguments import is_utf8

__all__ = ["read_secret"]


def read_secret(what: str) -> str:
    """Ask for a secret twice on a terminal; else return the first line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True, confirmation_prompt=True, err=True))
    secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise typer.BadParameter(f"Expected the {what.lower()} on standard input.")
    if not is_utf8(secret):
        raise typer.BadParameter(f"The {what.lower()} on standard input is not UTF-8.")
    return secret
