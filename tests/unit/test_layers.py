"""Imports point downward: each layer sees only those below it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# From the ground up; a layer may import from the layers before it and from itself. Names in one
# layer do not see each other. Those that are not built yet have their place already.
LAYERS = [
    {"model", "limits"},
    {"errors", "middleware", "protocols"},
    {"patterns", "replay", "settings"},
    {"_kernels"},
    {"ports"},
    {"wire", "storage"},
    {"transport", "decode"},
    {"core", "client", "flight"},
    {"admin", "conform", "gateway", "spark"},
    {"server", "pipeline", "console"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NEVER = {
    "core": {"transport", "wire", "storage"},  # storage and peers reach it through ports
    "client": {"core", "gateway", "server"},
    "flight": {"transport", "wire"},
    "spark": {"core", "gateway", "server"},
}
# What the codecs and the kernels, which must run anywhere, may use from outside.
OUTSIDE = {
    "wire": {"abc", "collections", "dataclasses", "enum", "functools", "msgspec", "struct", "sys",
             "types", "typing", "zlib"},
    "_kernels": {"array", "collections", "cpython", "libc", "os", "typing"},
    "middleware": {"dataclasses", "enum", "typing"},
    "model": {"enum", "re", "typing"},
    "protocols": {"collections", "dataclasses", "functools", "importlib", "types", "typing"},
    "limits": {"typing"},
    "errors": {"enum", "re", "typing"},
    "patterns": {"re", "typing"},
}  # fmt: skip

# The Arrow log is one storage among others: everything else uses `ports.Storage`. Only these know it.
ARROW_LOG_USERS = {
    "storage",  # the implementation, and the memory log, which shares its prepared rows
    "server/storages.py",  # the composition root
    "spark/folder_source.py",  # reads segments in place, behind an Origin
    "spark/capture_files.py",  # makes record batches of captured messages
    "cli",  # commands that look at a log folder without a broker
}

CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+(\S+)\s+c?import|c?import\s+(\S+))", re.MULTILINE)


def imported(path: Path) -> Iterator[str]:
    """Every module that a Python or Cython file imports."""
    if path.suffix in {".pyx", ".pxd"}:
        for match in CYTHON_IMPORT.finditer(path.read_text()):
            yield match[1] or match[2]
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            if node.module == "penstock":
                yield from (f"penstock.{alias.name}" for alias in node.names)


def files() -> list[Path]:
    return [
        path for path in sorted(SOURCE.rglob("*")) if path.suffix in {".py", ".pyi", ".pyx", ".pxd"}
    ]


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].split(".")[0]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward(path: Path) -> None:
    own = layer(path)
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no place among the layers"
    for module in imported(path):
        parts = module.split(".")
        if parts[0] != "penstock":
            allowed = OUTSIDE.get(own)
            assert allowed is None or parts[0] in allowed, f"{own} does not use {module}"
            continue
        if len(parts) == 1 or parts[1] == own:
            continue
        assert parts[1] in RANK, f"{path}: {module} has no place among the layers"
        assert RANK[parts[1]] < RANK[own], f"{own} does not see {module}"
        assert parts[1] not in NEVER.get(own, set()), f"{own} does not see {module}"


def test_a_protocol_does_not_import_another() -> None:
    for path in files():
        parts = path.relative_to(SOURCE).parts
        if parts[0] != "wire" or len(parts) < 3:
            continue
        for module in imported(path):
            inner = module.split(".")
            if (
                inner[:2] == ["penstock", "wire"]
                and len(inner) > 2
                and (SOURCE / "wire" / inner[2]).is_dir()
            ):
                assert inner[2] == parts[1], f"{path}: {module}"


def knows_arrow_log(path: Path) -> bool:
    place = path.relative_to(SOURCE)
    return str(place) in ARROW_LOG_USERS or place.parts[0] in ARROW_LOG_USERS


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_arrow_log_is_known_to_few(path: Path) -> None:
    if knows_arrow_log(path):
        return
    for module in imported(path):
        assert not module.startswith("penstock.storage.arrow"), f"{module}: use ports.Storage"


def test_only_the_composition_root_names_the_class_of_the_arrow_log() -> None:
    naming = {str(path.relative_to(SOURCE)) for path in files() if "ArrowLog" in path.read_text()}
    assert naming == {"storage/arrow/log.py", "server/storages.py"}


def test_the_list_of_those_who_know_the_arrow_log_is_current() -> None:
    using = {
        user
        for user in ARROW_LOG_USERS
        for path in files()
        if str(path.relative_to(SOURCE)).startswith(user)
        and any(module.startswith("penstock.storage.arrow") for module in imported(path))
    }
    assert using == ARROW_LOG_USERS
