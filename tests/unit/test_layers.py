"""Imports point downward: each layer sees only those below it."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# From the ground up; a layer may import from the layers before it and from itself. Names in one
# layer do not see each other. Those that are not built yet have their place already.
LAYERS = [
    {"closeable", "environment", "model", "limits"},
    {"errors", "middleware", "protocols"},
    {"tracing"},
    {"memory", "patterns", "positions", "replay", "service_messages", "settings"},
    {"topic_names"},
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


# Files that may name a protocol in code besides those of its own: where it is the only protocol of
# its kind (UDP, WebSocket, MessagePack, numbered channels). No new ones: look it up in PROTOCOLS.
MAY_NAME = {
    "lamamq": set(),
    "rheos": set(),
    "herald": {
        "cli/common/client_options.py",  # an example in a help text
        "gateway/options.py", "server/config.py", "server/config_checks.py", "server/run.py",
        "server/listener.py", "transport/udp.py",
    },
    "fleximq": {
        "client/handlers.py", "client/links.py", "client/values.py", "conform/connections.py",
        "decode/messagepack.py", "limits.py", "pipeline/gold.py", "pipeline/messagepack.py",
        "server/listener.py", "spark/capture_roles/role.py",
    },
}  # fmt: skip


def names_in_code(path: Path, label: str) -> list[str]:
    """Names, and strings without a blank, that contain a label; comments and docstrings may."""
    found: list[str] = []
    if label not in path.read_text().lower():
        return found  # most files; to split one into tokens takes 100 times as long
    before = tokenize.NEWLINE
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in {tokenize.COMMENT, tokenize.NL}:
                continue
            statement = before in {
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
                tokenize.ENCODING,
            }
            text = token.string.lower()
            if label in text and (
                token.type == tokenize.NAME
                or (token.type == tokenize.STRING and not statement and " " not in text)
            ):
                found.append(f"{token.start[0]}: {token.string}")
            before = token.type
    return found


@pytest.mark.parametrize("label", MAY_NAME)
def test_only_its_own_files_and_the_registry_name_a_protocol(label: str) -> None:
    allowed = {"protocols/registry.py", *MAY_NAME[label]}
    naming = {}
    for path in files():
        name = path.relative_to(SOURCE).as_posix()
        if path.suffix == ".py" and label not in name and (found := names_in_code(path, label)):
            naming[name] = found
    assert {name: found for name, found in naming.items() if name not in allowed} == {}
    assert naming.keys() == allowed, "a file that names it no more leaves the list"


def test_kernels_that_all_protocols_share_name_none() -> None:
    labels = ("lamamq", "herald", "rheos")
    for path in files():
        if path.suffix in {".pyx", ".pxd"} and not any(label in path.name for label in labels):
            code = re.sub(r'""".*?"""|#[^\n]*', "", path.read_text(), flags=re.DOTALL).lower()
            assert not [label for label in labels if label in code], path


# One place evaluates access rules; everything else asks `authorize` or `is_allowed`.
RULES = "core/access.py"
EVALUATES = re.compile(r"\.may(_anywhere)?\(|\.matches\(|NotAllowed\(")
MAY_REFUSE = {
    "errors/peer.py",  # declares it
    "server/flight/reader.py",  # an expression whose topics were selected by old rules
    "server/flight/sinks.py",  # a writer of another principal
}


def test_one_module_evaluates_access_rules() -> None:
    evaluating = {}
    for path in files():
        if path.suffix != ".py":
            continue
        found = EVALUATES.findall(path.read_text())
        if found:
            evaluating[path.relative_to(SOURCE).as_posix()] = path.read_text()
    assert evaluating.keys() == {RULES, *MAY_REFUSE}
    for name in MAY_REFUSE:
        assert not re.search(r"\.may(_anywhere)?\(|\.matches\(", evaluating[name]), name


# Compiling a pattern takes up to milliseconds. These compile patterns of the configuration, or run
# for one user alone.
PATTERN_COMPILERS = {
    "patterns.py",
    "server/config_checks.py",
    "storage/options.py",
    "storage/kafka/namespaces.py",
    "storage/arrow/format/topic_horizons.py",  # the rules of retention
    "cli",
    "client",
    "pipeline",
    "spark",
}


def test_no_pattern_of_a_client_is_compiled() -> None:
    compilers = {
        path.relative_to(SOURCE).as_posix()
        for path in files()
        if path.suffix == ".py" and "compile_pattern" in path.read_text(encoding="utf-8")
    }
    assert {
        each for each in compilers if not PATTERN_COMPILERS & {each, each.split("/")[0]}
    } == set()
