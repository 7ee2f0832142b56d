"""Write the lock files: exact versions and hashes of every package, for all platforms.

    pyproject.toml ──uv──▶ requirements/build.txt        to compile the kernels
                           requirements/runtime.txt      to run a broker
                           requirements/image.txt        the above, Kafka, traces, JSON Web Tokens
                           requirements/development.txt  the above, Spark, tests and checks
                           requirements/fuzz.txt         for `make fuzz`
                           requirements/docs.txt         for `make docs`, without the above

`make lock` runs it. Versions that are locked stay, unless pyproject.toml excludes them; with
`--upgrade` they become the newest ones.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "requirements"

DEVELOPMENT_EXTRAS: Final = (
    "console", "formats", "jwt", "kafka", "spark", "tracing", "test", "check", "supply",
)  # fmt: skip
IMAGE_EXTRAS: Final = ("jwt", "kafka", "tracing")
FUZZ_EXTRAS: Final = ("fuzz",)
DOCS_EXTRA: Final = "docs"

_UV: Final = Path(sys.executable).parent / "uv"
_OPTIONS: Final = (
    "--quiet",
    "--universal",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--custom-compile-command=make lock",
)


def lock(
    name: str, *arguments: str, extras: tuple[str, ...] = (), given: str | None = None
) -> None:
    """Write one lock file for pyproject.toml with `extras`, or for the requirements `given`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    command = [
        str(_UV), "pip", "compile", *_OPTIONS, "--python-version", oldest,
        *(f"--extra={extra}" for extra in extras),
        *arguments,
        "--output-file", str(FOLDER / name),
        "-" if given is not None else "pyproject.toml",
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, input=given, text=True)  # noqa: S603


def main(arguments: list[str]) -> None:
    """Write all lock files. Packages that several of them have are of one version."""
    FOLDER.mkdir(exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = project["build-system"]["requires"]
    docs = project["project"]["optional-dependencies"][DOCS_EXTRA]
    lock("development.txt", *arguments, extras=DEVELOPMENT_EXTRAS)
    same = f"--constraint={FOLDER / 'development.txt'}"
    lock("runtime.txt", *arguments, same)
    lock("image.txt", *arguments, same, extras=IMAGE_EXTRAS)
    lock("fuzz.txt", *arguments, same, extras=FUZZ_EXTRAS)
    lock("docs.txt", *arguments, same, given="\n".join(docs))
    lock("build.txt", *arguments, given="\n".join(build))


if __name__ == "__main__":
    main(sys.argv[1:])
