"""Fuzz the codecs with atheris: `python -m tests.fuzz.run [--seconds N] [--target NAME]...`.

Each target runs in its own process on its seeds and the corpus. An input that breaks a promise
stays in `corpus/<target>/`, where the short pass tries it for ever. Exit codes: 0 nothing found,
1 something found, 2 atheris is missing.
"""

import argparse
import dataclasses
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.inputs import CORPUS, NAMES, found, load

INPUT_SECONDS_MAX = 10
INPUT_BYTES_MAX = 4096
MEMORY_MIB_MAX = 2048


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What one run of one target did; `log` is all that atheris said."""

    name: str
    clean: bool
    kept: tuple[Path, ...]
    log: str

    @property
    def inputs(self) -> int:
        """How many inputs were tried."""
        tried = re.search(r"stat::number_of_executed_units:\s*(\d+)", self.log)
        return int(tried[1]) if tried else 0

    @property
    def coverage(self) -> str:
        """What atheris counted last: code edges and features reached."""
        return next(iter(re.findall(r"cov: \d+ ft: \d+", self.log)[-1:]), "cov: none")

    def __str__(self) -> str:
        line = f"{self.name}: {self.inputs} inputs tried, {self.coverage}, "
        if self.clean:
            return line + "nothing found\n"
        kept = "".join(f"  kept {path.relative_to(CORPUS.parent)}\n" for path in self.kept)
        _, _, reason = self.log.partition("=== Uncaught Python exception: ===")
        return f"{line}FOUND\n{kept}{(reason[:2000] or self.log[-2000:]).strip()}\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the targets one after another; return the exit code."""
    options = _options(arguments)
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write(
            "atheris is not installed: `make fuzz` installs it and runs this,\n"
            "or: python -m pip install 'penstock-broker[fuzz]'\n"
        )
        return 2
    clean = True
    for name in options.target or NAMES:
        report = fuzz(name, seconds=options.seconds)
        sys.stdout.write(str(report))
        sys.stdout.flush()
        clean = clean and report.clean
    return 0 if clean else 1


def fuzz(name: str, *, seconds: int) -> Report:
    """Run one target for `seconds`, or until an input breaks a promise; keep that input."""
    with tempfile.TemporaryDirectory(prefix=f"penstock-fuzz-{name}-") as folder:
        inputs, artifacts = Path(folder) / "inputs", Path(folder) / "artifacts"
        inputs.mkdir()
        artifacts.mkdir()
        for number, data in enumerate((*load(name).SEEDS, *found(name))):
            (inputs / f"{number:04}").write_bytes(data)
        process = subprocess.run(  # noqa: S603 - our own interpreter and module
            [
                sys.executable,
                *("-m", "tests.fuzz.instrumented", name, str(inputs)),
                f"-max_total_time={seconds}",
                f"-max_len={INPUT_BYTES_MAX}",
                f"-timeout={INPUT_SECONDS_MAX}",
                f"-rss_limit_mb={MEMORY_MIB_MAX}",
                f"-artifact_prefix={artifacts}/",
                "-print_final_stats=1",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            errors="replace",
        )
        return Report(name, process.returncode == 0, _keep(name, artifacts), process.stdout)


def _keep(name: str, artifacts: Path) -> tuple[Path, ...]:
    """Copy what was found into the corpus, unless it is there under another name."""
    known = set(found(name))
    kept = []
    for artifact in sorted(artifacts.iterdir()):
        if artifact.read_bytes() not in known:
            kept.append(CORPUS / name / artifact.name)
            kept[-1].write_bytes(artifact.read_bytes())
    return tuple(kept)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.run", description="Fuzz the codecs."
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--target", action="append", choices=NAMES, help="default: all, in turn")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
