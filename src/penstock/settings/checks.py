"""Checks across settings, each run only if the tables that it reads are valid."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from penstock.settings.problems import Problems

__all__ = ["Check", "run_checks"]

Config = TypeVar("Config")
Check: TypeAlias = tuple[Callable[[Config, Problems], None], frozenset[str]]
"""A function that adds problems of a configuration, and the top-level tables that it reads."""


def run_checks(config: Config, checks: Sequence[Check[Config]], problems: Problems) -> None:
    """Add the problems of settings that do not fit together.

    A check is skipped if a table that it reads has a problem already.
    """
    unreadable = problems.tables
    for function, tables in checks:
        if not unreadable.intersection(tables):
            function(config, problems)
