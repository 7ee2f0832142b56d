"""Read typed settings from TOML: one pass, every problem with its source, line and key."""

from penstock.settings.checks import Check, run_checks
from penstock.settings.description import describe, without_constraints, without_none
from penstock.settings.problems import Problems
from penstock.settings.reading import build, read_settings, read_value, setting_types
from penstock.settings.toml_file import TomlFile, read_toml

__all__ = [
    "Check",
    "Problems",
    "TomlFile",
    "build",
    "describe",
    "read_settings",
    "read_toml",
    "read_value",
    "run_checks",
    "setting_types",
    "without_constraints",
    "without_none",
]
