"""The environment of processes that Penstock starts: its own may hold secrets."""

import os
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["INHERITED_VARIABLES", "inherited_variables", "own_module_variables"]

INHERITED_VARIABLES: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
)
"""Variables that processes get, and those that begin with `LC_`."""


def inherited_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that a process gets."""
    return {
        name: value
        for name, value in environment.items()
        if name in INHERITED_VARIABLES or name.startswith("LC_")
    }


def own_module_variables() -> dict[str, str]:
    """Return the variables of a process that runs a module of Penstock."""
    return {
        **inherited_variables(os.environ),
        # The modules that this process has loaded, wherever they are.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
