"""Run the steps of the container file in a plain folder, where no image can be pulled.

    make image-steps        in a temporary folder; packages of the system are not installed

Every stage has a folder, which its steps know as ROOT. At the end the broker of the last stage
checks the configuration of the image. This takes minutes: the kernels are compiled.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "deploy" / "container" / "Containerfile"
_SYSTEM: Final = re.compile(r"apt-get |.*\bchown ")
"""Steps that need root, or change the system."""


class Step(NamedTuple):
    """One instruction: `stage` counts from 0."""

    stage: int
    word: str
    argument: str


def steps(text: str) -> Iterator[Step]:
    """Yield the instructions of a container file."""
    stage = -1
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, argument = line.partition(" ")
        stage += word == "FROM"
        yield Step(stage, word, argument)


def context_files(ignore: str) -> list[str]:
    """Return the names that .dockerignore lets into the build: lines that start with `!`."""
    return [line[1:] for line in ignore.splitlines() if line.startswith("!")]


class Steps:
    """Runs steps below `folder`; `python` is what `python` means in them."""

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder = folder
        self._python = python
        self._directory = folder
        self._names: dict[str, int] = {}

    def root(self, stage: int) -> Path:
        """Return the folder of a stage."""
        made = self._folder / f"stage{stage}"
        made.mkdir(exist_ok=True)
        return made

    def run(self, step: Step) -> None:
        """Run one step; those that only describe the image do nothing here."""
        root = self.root(step.stage)
        argument = step.argument.replace("${ROOT}", str(root))
        match step.word:
            case "FROM":
                self._directory = root
                if " AS " in argument:
                    self._names[argument.rpartition(" ")[2]] = step.stage
            case "WORKDIR":
                self._directory = Path(argument)
            case "COPY":
                self._copy(step, argument.split())
            case "RUN" if not _SYSTEM.match(argument):
                path = f"{self._python.parent}:{os.environ['PATH']}"
                environment = {**os.environ, "PATH": path, "ROOT": str(root)}
                subprocess.run(  # noqa: S603
                    ["/bin/sh", "-ec", argument],
                    check=True, cwd=self._directory, env=environment,
                )  # fmt: skip
            case _:
                pass

    def _copy(self, step: Step, words: list[str]) -> None:
        source, target = words[-2:]
        if words[0].startswith("--from="):
            stage = self._names[words[0].removeprefix("--from=")]
            own = str(self.root(step.stage))
            found = Path(source.replace(own, str(self.root(stage))))
            shutil.copytree(found, target, symlinks=True)
            return
        names = context_files((ROOT / ".dockerignore").read_text()) if source == "." else [source]
        for name in names:
            place = Path(target) / name if source == "." else Path(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.so", "*.egg-info")
                shutil.copytree(ROOT / name, place, ignore=ignored)
            else:
                shutil.copy2(ROOT / name, place)


def main() -> None:
    """Run all steps, then the broker of the image with `--check`."""
    with tempfile.TemporaryDirectory() as made:
        runner = Steps(Path(made), Path(sys.executable))
        last = 0
        for step in steps(FILE.read_text()):
            print(step.word, step.argument, flush=True)
            runner.run(step)
            last = step.stage
        root = runner.root(last)
        # An environment's programs name the folder that it was made in: here, that of a stage.
        python = root / "opt" / "penstock" / "bin" / "python"
        config = root / "etc" / "penstock" / "penstock.toml"
        command = [str(python), "-m", "penstock.cli", "serve", "--check", "--config", str(config)]
        subprocess.run(command, check=True, cwd=root)  # noqa: S603


if __name__ == "__main__":
    main()
