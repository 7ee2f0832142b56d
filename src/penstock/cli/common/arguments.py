"""Checks of all arguments of all commands: text must be UTF-8, numbers must be finite."""

import functools
import inspect
import math
import os
from collections.abc import Callable
from typing import Any, Final

import typer

from penstock.cli.common.text import text_of

__all__ = ["checked", "is_utf8"]

AS_BYTES: Final = frozenset({"value", "command"})
"""Parameters that may be any bytes."""


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that checks its arguments first; raise typer.BadParameter."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def command(**arguments: object) -> object:
        for name, argument in arguments.items():
            option = parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
            hint = f"--{name}" if option else name.upper()
            for each in argument if isinstance(argument, list | tuple) else (argument,):
                _check(each, hint, as_bytes=name in AS_BYTES)
        return function(**arguments)

    return command


def _check(argument: object, hint: str, *, as_bytes: bool) -> None:
    if isinstance(argument, float) and not math.isfinite(argument):
        raise typer.BadParameter(f"{argument} is not finite; give less.", param_hint=hint)
    if isinstance(argument, str) and not as_bytes and not is_utf8(argument):
        text = text_of(os.fsencode(argument))
        raise typer.BadParameter(f"'{text}' is not UTF-8; write it in UTF-8.", param_hint=hint)


def is_utf8(text: str) -> bool:
    """Return whether text of the command line or the environment was UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
