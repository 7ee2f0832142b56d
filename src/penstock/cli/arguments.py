"""What no argument of any command may be: text that is not UTF-8, a number without end."""

import functools
import inspect
import math
import os
from collections.abc import Callable
from typing import Any, Final

import typer

from penstock.cli.log_text import text_of

__all__ = ["checked", "guard", "is_utf8"]

AS_BYTES: Final = frozenset({"value", "command"})
"""Parameters whose bytes are passed on as they are."""


def guard(commands: typer.Typer) -> None:
    """Have the arguments of every command, also of groups within groups, checked first."""
    for command in commands.registered_commands:
        if command.callback is not None:
            command.callback = checked(command.callback)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            guard(group.typer_instance)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that raises typer.BadParameter for such an argument; paths are any bytes."""
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
    """Tell whether text of the command line or the environment came as UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
