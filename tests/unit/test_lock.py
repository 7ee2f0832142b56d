"""The lock files have every package that pyproject.toml asks for, at one version, with hashes."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.lock import (
    DEVELOPMENT_EXTRAS,
    DOCS_EXTRA,
    FOLDER,
    FUZZ_EXTRAS,
    IMAGE_EXTRAS,
    ROOT,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
RUNTIME: list[str] = PROJECT["project"]["dependencies"]
ASKED = {
    "build.txt": PROJECT["build-system"]["requires"],
    "runtime.txt": RUNTIME,
    "image.txt": RUNTIME + [each for extra in IMAGE_EXTRAS for each in EXTRAS[extra]],
    "development.txt": RUNTIME + [each for extra in DEVELOPMENT_EXTRAS for each in EXTRAS[extra]],
    "fuzz.txt": RUNTIME + [each for extra in FUZZ_EXTRAS for each in EXTRAS[extra]],
    "docs.txt": EXTRAS[DOCS_EXTRA],
}
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; (.+?))? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")

Pins = dict[str, list[tuple[Version, Marker | None]]]


def pins(name: str) -> Pins:
    """The versions of each package in a lock file, with the platforms that they are for."""
    found: Pins = {}
    for line in (FOLDER / name).read_text().splitlines():
        match = PIN.fullmatch(line)
        if match:
            package, version, marker = match.groups()
            versions = found.setdefault(canonicalize_name(package), [])
            versions.append((Version(version), Marker(marker) if marker else None))
    return found


@pytest.mark.parametrize("name", ASKED)
def test_a_lock_has_what_the_project_asks_for(name: str) -> None:
    found = pins(name)
    for text in ASKED[name]:
        asked = Requirement(text)
        versions = found.get(canonicalize_name(asked.name), [])
        assert versions, f"{asked.name} is not in requirements/{name}: run make lock"
        for version, _ in versions:
            message = (
                f"{asked.name} {version} in requirements/{name} does not fit {text}: run make lock"
            )
            assert asked.specifier.contains(version, prereleases=True), message


@pytest.mark.parametrize("name", ASKED)
def test_every_line_of_a_lock_is_a_version_or_a_hash(name: str) -> None:
    lines = (FOLDER / name).read_text().splitlines()
    hashes = 0
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            assert "://" not in line
            continue
        is_hash = HASH.fullmatch(line) is not None
        assert is_hash or PIN.fullmatch(line), f"{name}:{number}: {line}"
        hashes += is_hash
        if not is_hash:
            assert HASH.fullmatch(lines[number]), f"{name}:{number}: no hash"
    assert hashes >= len(pins(name))


def test_a_package_has_one_version_in_all_locks() -> None:
    development = pins("development.txt")
    for name in ("runtime.txt", "image.txt", "fuzz.txt", "docs.txt"):
        for package, versions in pins(name).items():
            if package in development:
                known = {version for version, _ in development[package]}
                assert {version for version, _ in versions} <= known, package


def test_versions_for_different_pythons_do_not_overlap() -> None:
    for name in ASKED:
        for package, versions in pins(name).items():
            for python in ("3.11.0", "3.12.0", "3.13.0"):
                environment = {"python_full_version": python, "python_version": python[:4]}
                fits = [
                    each
                    for each, marker in versions
                    if marker is None or marker.evaluate(environment)
                ]
                assert len(fits) <= 1, f"{package} in {name} for {python}"


def test_every_extra_is_locked() -> None:
    assert set(EXTRAS) == {*DEVELOPMENT_EXTRAS, *FUZZ_EXTRAS, DOCS_EXTRA}


def test_an_audit_that_cannot_run_fails_unless_the_service_is_out_of_reach(tmp_path: Path) -> None:
    lock = tmp_path / "broken.txt"
    lock.write_text("this is == no requirement\n")
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "tools.audit", str(lock)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "skipped" not in ended.stdout
