"""Load and validate `pipeline.toml`; all problems are reported together."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.pipeline.config import PipelineConfig
from penstock.pipeline.config_checks import check
from penstock.settings import Problems, build, read_settings, read_toml
from penstock.storage.urls import is_url, url_problem

__all__ = ["TOKEN_VARIABLE", "load"]

TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"  # noqa: S105  (the name of a variable)

_SECRETS: Final = ("source.token", "spark.conf")
"""Keys whose values are not repeated in error messages."""
_PATHS: Final = (
    "source.path",
    "source.certificate",
    "warehouse.folder",
    "warehouse.state_folder",
    "gold.sql",
)
_URLS: Final = frozenset({"warehouse.folder"})
"""Paths that may be the URL of an object store."""


def load(file: Path, *, environment: Mapping[str, str] | None = None) -> PipelineConfig:
    """Return the configuration of a file; raise InvalidConfig with all its problems.

    Paths are relative to the file's folder. Without a token in the file, the variable
    PENSTOCK_TOKEN is used.
    """
    contents = read_toml(file, remedy="give --config the path of a pipeline.toml")
    problems = Problems(contents, secrets=_SECRETS)
    values = _without_removed_keys(contents.values, problems)
    settings = read_settings(values, PipelineConfig, problems)
    _set_defaults(settings, os.environ if environment is None else environment)
    for key in _PATHS:
        if key in _URLS and is_url(settings.get(key) or ""):
            problem = url_problem(settings[key])
            if problem is not None:
                problems.add(key, problem)
        elif settings.get(key):
            settings[key] = str(file.parent / _local(key, settings[key], problems))
    config = build(PipelineConfig, settings)
    check(config, problems)
    problems.raise_found()
    return config


def _set_defaults(settings: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Set the settings whose defaults depend on other settings, the environment or the file."""
    if not settings.get("source.path") and not settings.get("source.endpoint"):
        settings["source.path"] = "penstock-data"
    if not settings.get("source.token"):
        settings["source.token"] = environment.get(TOKEN_VARIABLE, "")
    default = PipelineConfig().warehouse
    settings.setdefault("warehouse.folder", default.folder)
    settings.setdefault("warehouse.state_folder", default.state_folder)


def _local(key: str, path: str, problems: Problems) -> str:
    """Return a path; add a URL to `problems`, which would name a folder such as `s3:`."""
    if "://" in path:
        scheme = path.partition("://")[0]
        problem = f"expected a path of this machine; {scheme}:// is not supported"
        problems.add(key, problem)
    return path


def _without_removed_keys(values: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Return the contents of a file without keys of an earlier version; add each to `problems`."""
    warehouse = values.get("warehouse")
    if not isinstance(warehouse, dict) or "format" not in warehouse:
        return dict(values)
    problem = "was removed, all tables are Delta tables; delete this key"
    if warehouse["format"] != "delta":
        problem += " and give a new warehouse.folder, since older tables cannot be continued"
    problems.add("warehouse.format", problem)
    kept = {name: value for name, value in warehouse.items() if name != "format"}
    return {**values, "warehouse": kept}
