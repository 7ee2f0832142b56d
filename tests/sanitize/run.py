"""Run tests with kernels built for ASan and UBSan: `python -m tests.sanitize.run [PYTEST ARGUMENT]...`.

The package is copied to `build/sanitize` and its kernels are built there; the kernels of the checkout
stay as they are. Without arguments the unit, conformance and fuzz tests run. A fault of a kernel ends
the process of the test and prints its place. Exit codes: those of pytest; 77 if gcc has no
sanitizers.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
BUILD = PROJECT / "build" / "sanitize"
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"
TESTS = ("tests/unit", "tests/conformance", "tests/fuzz")
# These start many processes, or measure memory or time: sanitizers change both.
LEFT_OUT = (
    "tests/unit/test_layers.py",
    "tests/unit/cli",
)
SKIPPED = 77


def library(name: str) -> Path | None:
    """Return the path of a sanitizer's library, None if gcc has none."""
    try:
        found = subprocess.run(  # noqa: S603
            ["gcc", f"-print-file-name={name}"],  # noqa: S607
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return Path(found).resolve() if Path(found).is_absolute() else None


def copy() -> None:
    """Copy sources that are newer; kernels are built again only where they changed."""
    for path in PROJECT.joinpath("src").rglob("*"):
        if path.suffix not in {".so", ".c", ".pyc"} and path.is_file():
            target = BUILD / path.relative_to(PROJECT)
            if not target.exists() or target.read_bytes() != path.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
                target.touch()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(PROJECT / name, BUILD / name)


def build() -> None:
    """Build the kernels with sanitizers."""
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    python = os.environ.get("BUILD_PYTHON", sys.executable)
    command = [python, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=BUILD, env=environment, check=True)  # noqa: S603


def main(arguments: list[str]) -> int:
    """Build, then run pytest; return the exit code."""
    libraries = [library("libasan.so"), library("libubsan.so")]
    if None in libraries:
        sys.stderr.write("gcc has no libasan and libubsan: apt-get install libasan8 libubsan1\n")
        return SKIPPED
    BUILD.mkdir(parents=True, exist_ok=True)
    copy()
    build()
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONPATH": str(BUILD / "src"),
        "PYTHONMALLOC": "malloc",  # so that a read beyond a bytes object is noticed
        "PENSTOCK_SANITIZED": "1",
    }
    chosen = arguments or [*TESTS, *(f"--ignore={each}" for each in LEFT_OUT)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    return subprocess.run(command, cwd=PROJECT, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
