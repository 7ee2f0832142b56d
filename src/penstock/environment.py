"""The environment of processes that Penstock starts. Its own environment may have secrets."""

import os
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["INHERITED_VARIABLES", "inherited_variables", "own_module_variables"]

INHERITED_VARIABLES: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
)
"""Variables that these processes inherit, besides those that begin with `LC_`."""


def inherited_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that a started process inherits."""
    return {
        name: value
        for name, value in environment.items()
        if name in INHERITED_VARIABLES or name.startswith("LC_")
    }


def own_module_variables() -> dict[str, str]:
    """Return the variables of a process that runs a module of Penstock."""
    return {
        **inherited_variables(os.environ),
        # The process finds modules where this process finds them.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
