"""An archive of Penstock and the packages that it needs, for the executors of a cluster.

Spark unpacks an archive in the folder of each executor, so compiled modules can be imported from
it, which they cannot from a file of `--py-files`. PySpark itself is not in it: executors have that
of their cluster.

    penstock-spark.tar.gz ──▶ penstock/      with its compiled kernels
                              pyarrow/ …     what it depends on
                              penstock-spark.json
"""

import contextlib
import gzip
import importlib.metadata
import importlib.util
import io
import json
import platform
import re
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

import penstock
from penstock.errors import CannotExport
from penstock.storage.files import TEMPORARY

__all__ = ["ENDINGS", "Packaged", "make_package"]

ENDINGS: Final = (".tar.gz", ".tgz", ".tar", ".zip")
"""Endings of the archives that Spark unpacks."""
_DISTRIBUTION: Final = "penstock-broker"
_OWN: Final = ("penstock", "pyspark_penstock")
_EXTRAS: Final = ("spark", "kafka", "formats", "tracing")
"""Extras of which the packages are taken if they are installed."""
_OF_THE_CLUSTER: Final = frozenset({"pyspark", "py4j"})
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "tests", "include"})
_SKIPPED_ENDINGS: Final = (".pyc", ".pyx", ".pxd", ".pyi", ".c", ".cpp", ".h", ".hpp", ".a")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_GZIP_LEVEL: Final = 1
"""Higher levels take several times as long, for a tenth of the size."""
_MODE: Final = 0o755
_ABOUT: Final = "penstock-spark.json"
_DATE: Final = (2026, 1, 1, 0, 0, 0)
"""The same packages make the same archive."""


class Packaged(NamedTuple):
    """An archive: its packages with their versions, its size, and the Python that it is for."""

    packages: dict[str, str]
    size: int
    python: str


def make_package(out: Path, *, without: Collection[str] = ()) -> Packaged:
    """Write the archive; raise CannotExport.

    `without` names packages to leave out, for instance those that executors have.
    """
    if not out.name.endswith(ENDINGS):
        raise CannotExport(str(out), f"its name must end in {', '.join(ENDINGS)}")
    packages = {
        name: importlib.metadata.version(name)
        for name in sorted(_dependencies() - {_normal(each) for each in without})
    }
    packages[_DISTRIBUTION] = penstock.__version__
    python = ".".join(platform.python_version_tuple()[:2])
    about = {"python": python, "machine": platform.machine(), "packages": packages}
    temporary = out.with_name(out.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            _write(file, out.name, _files(packages), json.dumps(about, indent=1).encode())
        temporary.replace(out)
    except OSError as error:
        raise CannotExport(str(out), error.strerror or str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return Packaged(packages, out.stat().st_size, python)


# --- Packages -------------------------------------------------------------------------------------


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _dependencies() -> set[str]:
    """Return the installed packages that Penstock needs, with those that they need."""
    found: set[str] = set()
    waiting = list(_required(_DISTRIBUTION, _EXTRAS))
    while waiting:
        name = waiting.pop()
        if name in found or name in _OF_THE_CLUSTER:
            continue
        try:
            needed = list(_required(name))
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra, or for another platform
        found.add(name)
        waiting += needed
    return found


def _required(name: str, extras: Collection[str] = ()) -> Iterator[str]:
    for line in importlib.metadata.requires(name) or ():
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        named = _NAME.match(requirement.strip())
        if named is not None and (extra is None or extra[1] in extras):
            yield _normal(named[0])


# --- Files ----------------------------------------------------------------------------------------


def _files(packages: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files of packages, each with its name in the archive."""
    for name in _OWN:  # by folder: an editable installation does not list its files
        spec = importlib.util.find_spec(name)
        for place in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(place).rglob("*")):
                relative = PurePosixPath(name, *path.relative_to(place).parts)
                if path.is_file() and _is_needed(relative):
                    yield str(relative), path
    for name in packages:
        if name == _DISTRIBUTION:
            continue
        for listed in sorted(importlib.metadata.files(name) or ()):
            path = Path(str(listed.locate()))
            if _is_needed(PurePosixPath(listed)) and path.is_file():
                yield str(listed), path


def _is_needed(relative: PurePosixPath) -> bool:
    """Return whether a file is imported: no programs, tests, headers or sources of kernels."""
    return not (
        relative.is_absolute()
        or ".." in relative.parts
        or _SKIPPED_FOLDERS.intersection(relative.parts)
        or relative.name.endswith(_SKIPPED_ENDINGS)
    )


def _write(file: IO[bytes], name: str, files: Iterator[tuple[str, Path]], about: bytes) -> None:
    if name.endswith(".zip"):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_GZIP_LEVEL) as packed:
            packed.writestr(_info(_ABOUT), about)
            for each, path in files:
                packed.writestr(_info(each), path.read_bytes())
        return
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] | gzip.GzipFile = file
        if not name.endswith(".tar"):
            stream = stack.enter_context(  # without the time, in contrast to mode "w:gz"
                gzip.GzipFile("", "wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0)
            )
        tar = stack.enter_context(tarfile.open(fileobj=stream, mode="w"))
        _add(tar, _ABOUT, about)
        for each, path in files:
            _add(tar, each, path.read_bytes())


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = _MODE << 16
    return info


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), _MODE
    tar.addfile(info, io.BytesIO(content))
