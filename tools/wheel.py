"""Build the wheels of the distribution, one for each CPython that is found, and check them.

    make wheel                wheels in dist/, for CPython 3.11, 3.12 and 3.13 where found
    make wheel ARGS=--install install each in a new environment, without a compiler, and run it

A wheel has compiled kernels without symbols, and neither their sources nor the C that Cython
generates. It is built from a copy of the sources, so nothing that was compiled before gets into it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
VERSIONS: Final = ("3.11", "3.12", "3.13")
"""The CPythons that pyproject.toml has classifiers for."""

_PYENV: Final = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
_FILES: Final = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
_BUILT: Final = shutil.ignore_patterns("*.c", "*.so", "__pycache__", "*.egg-info")
_STRIP: Final = "-Wl,--strip-all"
_FOREIGN: Final = (".c", ".h", ".html", ".pxd", ".pyx")
_MARK_SYMBOLS: Final = b"\0.symtab\0"
"""The name of the section that `strip` removes, in the table of section names."""


class UnfitWheel(Exception):
    """A wheel has what it must not have, or lacks what it must have; the text says what."""


def found(version: str) -> Path | None:
    """Return the interpreter of a version: this one, one that uv finds, or one of pyenv."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return Path(sys.executable)
    uv = Path(sys.executable).parent / "uv"
    asked = [str(uv), "python", "find", "--no-python-downloads", "--no-project", version]
    try:
        ended = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
        if ended.returncode == 0:
            return Path(ended.stdout.strip())
    except FileNotFoundError:
        pass
    return next(iter(sorted(_PYENV.glob(f"{version}.*/bin/python"))), None)


def stage(folder: Path) -> Path:
    """Copy the sources to `folder`, without what was built from them; return it."""
    for name in _FILES:
        shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(ROOT / "src", folder / "src", ignore=_BUILT, dirs_exist_ok=True)
    return folder


def build(python: Path, staged: Path, dist: Path) -> Path:
    """Build the wheel of an environment that has the build packages; return its path."""
    before = set(dist.glob("*.whl"))
    flags = f"{os.environ.get('LDFLAGS', '')} {_STRIP}".strip()
    command = [
        str(python), "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", "--wheel-dir", str(dist), str(staged),
    ]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "LDFLAGS": flags})  # noqa: S603
    (wheel,) = set(dist.glob("*.whl")) - before
    return wheel


def check(wheel: Path) -> None:
    """Raise UnfitWheel unless a wheel has every kernel, stripped, and no source of one."""
    kernels = {path.stem for path in (ROOT / "src/penstock/_kernels").glob("*.pyx")}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in names:
            if name.endswith(_FOREIGN):
                raise UnfitWheel(f"{wheel.name} has {name}")
            if name.endswith(".so"):
                if _MARK_SYMBOLS in archive.read(name):
                    raise UnfitWheel(f"{name} in {wheel.name} is not stripped")
                kernels.discard(Path(name).name.partition(".")[0])
    if kernels:
        raise UnfitWheel(f"{wheel.name} lacks kernels: {', '.join(sorted(kernels))}")
    if "penstock/py.typed" not in names:
        raise UnfitWheel(f"{wheel.name} lacks py.typed")


def environment(python: Path, folder: Path, *requirements: str) -> Path:
    """Make a virtual environment with locked requirements; return its interpreter."""
    subprocess.run([str(python), "-m", "venv", str(folder)], check=True)  # noqa: S603
    inside = folder / "bin" / "python"
    for name in requirements:
        _pip(inside, "--require-hashes", "--requirement", str(ROOT / "requirements" / name))
    return inside


def install(python: Path, wheel: Path, folder: Path) -> None:
    """Install a wheel in a new environment with locked packages, all binary, and run a command."""
    inside = environment(python, folder)
    lock = ROOT / "requirements" / "runtime.txt"
    _pip(inside, "--only-binary=:all:", "--require-hashes", "--requirement", str(lock))
    _pip(inside, "--no-deps", "--no-index", str(wheel))
    program = [str(folder / "bin" / "penstock"), "serve", "--check"]
    subprocess.run(program, check=True, cwd=folder, env=without_compiler(folder))  # noqa: S603


def without_compiler(folder: Path) -> dict[str, str]:
    """Return an environment whose PATH has only the programs of a virtual environment."""
    return {"PATH": str(folder / "bin"), "HOME": str(folder), "CC": "/nonexistent/cc"}


def _pip(python: Path, *arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    command = [str(python), "-m", "pip", "install", *quiet, *arguments]
    own = {**os.environ, "CC": "/nonexistent/cc"}  # a package without a wheel is an error
    subprocess.run(command, check=True, env=own)  # noqa: S603


def build_all(
    dist: Path, versions: Sequence[str] = VERSIONS, *, try_install: bool
) -> Iterator[Path]:
    """Yield each wheel when it is built and checked; print versions that are not found."""
    dist.mkdir(exist_ok=True)
    for version in versions:
        python = found(version)
        if python is None:
            print(f"CPython {version} is not found: no wheel for it")
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "staged").mkdir()
            inside = environment(python, place / "build", "build.txt")
            (place / "dist").mkdir()
            built = build(inside, stage(place / "staged"), place / "dist")
            check(built)
            if try_install:
                install(python, built, place / "clean")
            yield Path(shutil.copy2(built, dist / built.name))


def main(arguments: Sequence[str]) -> None:
    """Build the wheels and print their names and sizes; exit with 1 if there is none."""
    parser = argparse.ArgumentParser(prog="make wheel")
    parser.add_argument("--install", action="store_true", help="try each in a clean environment")
    parser.add_argument("--this", action="store_true", help="only for this Python")
    chosen = parser.parse_args(arguments)
    versions = (f"3.{sys.version_info.minor}",) if chosen.this else VERSIONS
    count = 0
    for wheel in build_all(DIST, versions, try_install=chosen.install):
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size:,} bytes", flush=True)
        count += 1
    sys.exit(0 if count else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
