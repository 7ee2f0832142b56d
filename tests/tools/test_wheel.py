"""The wheel: what is in it, and that it runs in an environment without a compiler.

To compile the kernels takes minutes, so the wheel of this test has those that are compiled already.
`make wheel ARGS=--install` compiles them and installs all packages, for every CPython.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import penstock
from penstock.cli.common.extras import EXTRAS
from tests.support.commands import Commands
from tools.wheel import ROOT, VERSIONS, UnfitWheel, build, check, stage, without_compiler

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KERNELS = ROOT / "src" / "penstock" / "_kernels"
INSTALLS = re.compile(r"pip3? install [^`\n]*?(['\"]?)penstock(?!-broker)\b")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the kernels of this environment, stripped."""
    if shutil.which("strip") is None:
        pytest.skip("strip is not installed: apt-get install binutils")
    folder = tmp_path_factory.mktemp("staged")
    stage(folder)
    tag = f"{sysconfig.get_platform()}-cpython-{sys.version_info.major}{sys.version_info.minor}"
    built = folder / "build" / f"lib.{tag}" / "penstock" / "_kernels"
    built.mkdir(parents=True)
    for source in KERNELS.glob("*.pyx"):
        # Cython and setuptools translate and compile what is older than its source.
        translated = shutil.copy(source.with_suffix(".c"), folder / "src/penstock/_kernels")
        assert Path(translated).stat().st_mtime > source.stat().st_mtime
        library = source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
        shutil.copy(library, built)
        subprocess.run(["strip", built / library.name], check=True)  # noqa: S603, S607
    return build(Path(sys.executable), folder, tmp_path_factory.mktemp("dist"))


def test_a_wheel_has_no_generated_c_and_stripped_libraries(wheel: Path) -> None:
    check(wheel)
    assert wheel.name.startswith(f"penstock_broker-{penstock.__version__}-cp")
    with zipfile.ZipFile(wheel) as archive:
        suffixes = {Path(name).suffix for name in archive.namelist()}
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
        packages = {name.partition("/")[0] for name in archive.namelist()}
    assert suffixes <= {
        "", ".py", ".pyi", ".so", ".typed", ".properties", ".txt", ".css", ".svg", ".js"
    }  # fmt: skip
    assert (fields["Name"], fields["Version"]) == ("penstock-broker", penstock.__version__)
    assert {"penstock", "pyspark_penstock"} < packages
    assert len(packages) == 3


def test_a_wheel_runs_where_no_compiler_is(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "clean"
    make = [sys.executable, "-m", "venv", "--without-pip", str(place)]
    subprocess.run(make, check=True)  # noqa: S603
    inside = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(inside), "install", "--quiet", "--no-deps"]
    own = without_compiler(place)
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, env=own)  # noqa: S603
    # The other packages are those of this environment; its own Penstock is found by a .pth file,
    # which is read in the folders of an interpreter's own packages only.
    packages = next(place.glob("lib/python3*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    program = (
        "import importlib, pkgutil, penstock, penstock._kernels as kernels\n"
        "for each in pkgutil.iter_modules(kernels.__path__):\n"
        "    importlib.import_module(f'penstock._kernels.{each.name}')\n"
        "print(penstock.__file__)"
    )
    shown = subprocess.run(  # noqa: S603
        [inside, "-c", program], check=True, env=own, capture_output=True, text=True
    )
    assert shown.stdout.strip() == str(packages / "penstock" / "__init__.py")
    checked = subprocess.run(  # noqa: S603
        [place / "bin" / "penstock", "serve", "--check"],
        check=False, env=own, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("extra", ["penstock/_kernels/batch.c", "penstock/_kernels/names.h"])
def test_a_wheel_with_sources_of_kernels_is_unfit(tmp_path: Path, wheel: Path, extra: str) -> None:
    changed = Path(shutil.copy(wheel, tmp_path))
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr(extra, "")
    with pytest.raises(UnfitWheel, match=re.escape(extra)):
        check(changed)


def test_a_wheel_with_symbols_or_without_a_kernel_is_unfit(tmp_path: Path, wheel: Path) -> None:
    with (
        zipfile.ZipFile(wheel) as archive,
        zipfile.ZipFile(tmp_path / "lacking.whl", "w") as lacking,
        zipfile.ZipFile(tmp_path / "named.whl", "w") as named,
    ):
        for name in archive.namelist():
            if "/batch." not in name:
                lacking.writestr(name, archive.read(name))
            named.writestr(name, archive.read(name))
        library = KERNELS / f"tally{sysconfig.get_config_var('EXT_SUFFIX')}"
        named.writestr("penstock/_kernels/other.so", library.read_bytes())
    with pytest.raises(UnfitWheel, match="lacks kernels: batch"):
        check(tmp_path / "lacking.whl")
    with pytest.raises(UnfitWheel, match="not stripped"):
        check(tmp_path / "named.whl")


def test_wheels_are_built_for_the_pythons_that_the_project_names() -> None:
    start = "Programming Language :: Python :: "
    named = [each.removeprefix(start) for each in PROJECT["classifiers"] if each.startswith(start)]
    assert tuple(named) == VERSIONS


def test_no_text_installs_the_other_project_called_penstock() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.toml", "*.txt", "Makefile", "deploy"],  # noqa: S607
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    listed.remove("tests/tools/test_wheel.py")  # it has examples
    found = [name for name in listed if INSTALLS.search((ROOT / name).read_text())]
    assert not found
    assert INSTALLS.search("pip install penstock")
    assert INSTALLS.search("pip install 'penstock[spark]'")
    assert not INSTALLS.search("pip install 'penstock-broker[spark]'")


def test_a_command_without_the_extra_of_its_packages_names_the_extra(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [*sys.modules]:
        if name.startswith("penstock.cli.spark") or name.partition(".")[0] == "pyspark":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    text = "this needs pyspark, which is not installed; install penstock-broker[spark]"
    assert commands.run("sql", "select 1", "--data", tmp_path).error_line() == text


def test_the_extras_of_packages_are_those_of_the_project() -> None:
    for package, extra in EXTRAS.items():
        asked = [re.split(r"[\[<>=]", each)[0] for each in PROJECT["optional-dependencies"][extra]]
        assert package in asked or package == "py4j", package  # which pyspark brings
