"""Load and validate `pipeline.toml`; all problems are reported together."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from penstock.pipeline.config import PipelineConfig
from penstock.pipeline.config_checks import check
from penstock.pipeline.registry import SchemaProblem
from penstock.pipeline.schema_fields import schema_fields
from penstock.pipeline.schema_files import decode_batches, missing_package, read_schema_file
from penstock.settings import Problems, build, read_settings, read_toml
from penstock.storage.urls import is_url, url_problem

__all__ = ["PASSWORD_VARIABLE", "TOKEN_VARIABLE", "load"]

TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"  # noqa: S105  (the name of a variable)

PASSWORD_VARIABLE: Final = "PENSTOCK_REGISTRY_PASSWORD"  # noqa: S105  (the name of a variable)

_SECRETS: Final = (
    "source.token",
    "source.kafka",
    "registry.password",
    "registry.url",
    "spark.conf",
)
"""Keys whose values are not repeated in error messages."""
_PATHS: Final = (
    "source.path",
    "source.certificate",
    "registry.certificate",
    "warehouse.folder",
    "warehouse.state_folder",
    "gold.sql",
)
_URLS: Final = frozenset({"warehouse.folder"})
"""Paths that may be the URL of an object store."""


def load(file: Path, *, environment: Mapping[str, str] | None = None) -> PipelineConfig:
    """Return the configuration of a file; raise InvalidConfig with all its problems.

    Paths are relative to the file's folder. Without a token in the file, the variable
    PENSTOCK_TOKEN is used, and PENSTOCK_REGISTRY_PASSWORD for the registry. Fields that schema
    files declare are added.
    """
    contents = read_toml(file, remedy="give --config the path of a pipeline.toml")
    problems = Problems(contents, secrets=_SECRETS)
    values = _with_source_table(_without_removed_keys(contents.values, problems))
    settings = read_settings(values, PipelineConfig, problems)
    _set_defaults(settings, os.environ if environment is None else environment)
    for key in _PATHS:
        if key in _URLS and is_url(settings.get(key) or ""):
            problem = url_problem(settings[key])
            if problem is not None:
                problems.add(key, problem)
        elif settings.get(key):
            settings[key] = str(file.parent / _local(key, settings[key], problems))
    kafka = settings.get("source.kafka") or {}
    settings["source.kafka"] = {
        name: str(file.parent / value) if name.endswith(".location") else value
        for name, value in kafka.items()
    }
    config = _with_schema_files(build(PipelineConfig, settings), file.parent, problems)
    check(config, problems)
    problems.raise_found()
    return config


def _set_defaults(settings: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Set the settings whose defaults depend on other settings, the environment or the file."""
    if not any(settings.get(f"source.{name}") for name in ("path", "url", "endpoint")):
        settings["source.path"] = "penstock-data"
    if not settings.get("source.token"):
        settings["source.token"] = environment.get(TOKEN_VARIABLE, "")
    if not settings.get("registry.password"):
        settings["registry.password"] = environment.get(PASSWORD_VARIABLE, "")
    default = PipelineConfig().warehouse
    settings.setdefault("warehouse.folder", default.folder)
    settings.setdefault("warehouse.state_folder", default.state_folder)


def _with_schema_files(config: PipelineConfig, folder: Path, problems: Problems) -> PipelineConfig:
    """Return the configuration with the fields of schema files; add their problems."""
    tables = []
    for index, silver in enumerate(config.silver):
        table = silver
        for name in ("schema_file", "writer_schema_file"):
            path = getattr(silver, name)
            if path:
                table = structs.replace(table, **{name: str(folder / path)})
        key = f"silver[{index}].schema_file"
        if missing_package(table.format):
            package, extra = ("fastavro" if table.format == "avro" else "protobuf"), "formats"
            problem = f"needs {package}, which is not installed; install penstock-broker[{extra}]"
            problems.add(f"silver[{index}].format", problem)
        elif table.schema_file and table.format not in {"csv", "text"}:
            try:
                fields = schema_fields(table, read_schema_file(table.schema_file))
                table = structs.replace(table, field=fields)
                if table.writer_schema_file:
                    key = f"silver[{index}].writer_schema_file"
                    decode_batches(table, config.registry)
            except OSError as error:
                problems.add(key, f"cannot be read: {(error.strerror or str(error)).lower()}")
            except SchemaProblem as problem:
                problems.add(key, str(problem))
        tables.append(table)
    return structs.replace(config, silver=tuple(tables))


def _local(key: str, path: str, problems: Problems) -> str:
    """Return a path; add a URL to `problems`, which would name a folder such as `s3:`."""
    if "://" in path:
        scheme = path.partition("://")[0]
        problem = f"expected a path of this machine; {scheme}:// is not supported"
        problems.add(key, problem)
    return path


def _with_source_table(values: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a file with a table for `source = "kafka://…"`."""
    source = values.get("source")
    return {**values, "source": {"url": source}} if isinstance(source, str) else values


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
