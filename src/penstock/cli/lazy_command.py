"""Commands that are imported when they are called.

The list of commands has the name, the one-line help and the module of each, so `penstock --help`
imports none of them. `penstock X --help` imports the module of X, which declares its options.
"""

import importlib
import keyword
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from penstock.cli.common.arguments import checked

__all__ = ["DefaultGroup", "LazyCommand", "add_commands", "examples"]


def examples(*lines: str) -> str:
    """Return the examples that `--help` prints below the options."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class LazyCommand(TyperCommand):
    """A command whose function is in another module, imported when the command is called.

    The function is named as the command, with `_` for `-`, and with `_` behind a keyword. The
    module has its examples in a constant named after the command, such as `HASH_KEY_EXAMPLES`.
    """

    def __init__(self, name: str, short_help: str, module: str) -> None:
        super().__init__(name, short_help=short_help)
        self._module = module

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Parse the arguments with the command that the module declares."""
        return self.load().make_context(*arguments, **options)

    def load(self) -> Any:  # noqa: ANN401
        """Import the module and return the command that it declares."""
        module = importlib.import_module(self._module)
        name = str(self.name).replace("-", "_")
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        function = f"{name}_" if keyword.iskeyword(name) else name
        app.command(self.name, epilog=getattr(module, f"{name.upper()}_EXAMPLES"))(
            checked(getattr(module, function))
        )
        return typer.main.get_command(app)


class DefaultGroup(TyperGroup):
    """A group that is a command itself: it runs `default` unless a command of it is named."""

    def __init__(self, default: LazyCommand) -> None:
        super().__init__(name=default.name, short_help=default.short_help, rich_markup_mode=None)
        self.default = default

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Any = None,  # noqa: ANN401
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Parse the arguments of the named command, or of the default one."""
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return self.default.make_context(info_name, args, parent, **extra)


def add_commands(group: TyperGroup, *commands: tuple[str, str, str]) -> None:
    """Add commands to a group, each with its name, one-line help and module."""
    for name, short_help, module in commands:
        group.add_command(LazyCommand(name, short_help, module))
