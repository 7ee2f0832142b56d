"""Send damaged Arrow to everything that takes Arrow: `python -m tests.fuzz.arrow [--inputs N]`.

Inputs are numbered; a number and the seed give the same input everywhere. They run in batches, each
in a process of its own. If the process crashes, hangs or raises, the input is kept in
`corpus/arrow/<surface>-<number>`, and the next process goes on behind it. Exit codes: 0 nothing
found, 1 something found.
"""

import argparse
import collections
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz.inputs import CORPUS

SEED = 20261116
BATCH = 10_000
INPUT_SECONDS_MAX = 60
MEMORY_BYTES_MAX = 6 << 30
KEPT = CORPUS / "arrow"
_NUMBER = struct.Struct("<q")


def surface_of(number: int, seed: int) -> tuple[str, random.Random]:
    """Return the surface of an input, and the source of its choices."""
    from tests.fuzz.arrow_surfaces import SHARES  # noqa: PLC0415 - imports pyarrow

    choose = random.Random(f"{seed}/{number}")
    name = choose.choices(list(SHARES), list(SHARES.values()))[0]
    return name, choose


_seeds: dict[str, Sequence[bytes]] = {}


def input_of(number: int, seed: int) -> tuple[str, bytes]:
    """Return the surface and the bytes of an input."""
    from tests.fuzz.arrow_surfaces import SURFACES  # noqa: PLC0415

    name, choose = surface_of(number, seed)
    surface = SURFACES[name]
    if name not in _seeds:
        _seeds[name] = surface.seeds()
    return name, surface.damage(choose.choice(_seeds[name]), choose)


def kept() -> Iterator[tuple[str, bytes]]:
    """Yield the surface and bytes of every input that was ever found."""
    for path in sorted(KEPT.iterdir()) if KEPT.is_dir() else ():
        name = path.name.rpartition("-")[0]
        if path.suffix != ".md":
            yield name, path.read_bytes()


def work(first: int, count: int, seed: int, progress: Path) -> int:
    """Try inputs in this process; `progress` has the number of the current one."""
    from tests.fuzz.arrow_surfaces import SURFACES  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tally: collections.Counter[str] = collections.Counter()
    with progress.open("r+b", buffering=0) as place:
        for number in range(first, first + count):
            place.seek(0)
            place.write(_NUMBER.pack(number))
            name, data = input_of(number, seed)
            tally[name] += 1
            try:
                tally[f"{name} accepted"] += SURFACES[name].check(data)
            except Exception:  # noqa: BLE001 - anything that is not a refusal is a finding
                tally["found"] += 1
                path = keep(name, number, data)
                sys.stderr.write(f"FOUND {path.name}\n{traceback.format_exc()[-1500:]}\n")
        place.seek(0)
        place.write(_NUMBER.pack(-1))
    sys.stdout.write("".join(f"{name}\t{each}\n" for name, each in tally.items()))
    return 0


def keep(name: str, number: int, data: bytes) -> Path:
    """Store an input in the corpus."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{name}-{number}"
    path.write_bytes(data)
    return path


def run(first: int, count: int, seed: int) -> tuple[collections.Counter[str], list[str]]:
    """Try a batch of inputs in other processes; return the tally and the reports of what was found."""
    tally: collections.Counter[str] = collections.Counter()
    reports = []
    end = first + count
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-arrow-") as folder:
        progress = Path(folder) / "number"
        while first < end:
            progress.write_bytes(_NUMBER.pack(first))
            arguments = ("--worker", str(first), str(end - first), str(seed), str(progress))
            try:
                done = subprocess.run(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-m", "tests.fuzz.arrow", *arguments],
                    capture_output=True, text=True, errors="replace", check=False,
                    timeout=INPUT_SECONDS_MAX + count * 0.5,
                )  # fmt: skip
                code, said = done.returncode, done.stderr
            except subprocess.TimeoutExpired as error:
                code, said = -1, f"no end after {error.timeout} seconds"
            (number,) = _NUMBER.unpack(progress.read_bytes())
            if code == 0 and number == -1:
                if said.strip():
                    reports.append(said.strip()[-3000:])
                for line in done.stdout.splitlines():
                    name, _, each = line.partition("\t")
                    tally[name] += int(each)
                break
            name, data = input_of(number, seed)
            path = keep(name, number, data)
            reports.append(f"FOUND {path.name}: exit code {code}\n{said.strip()[-1500:]}")
            tally[f"{name} lost"] += number + 1 - first
            first = number + 1
    return tally, reports


def main(arguments: list[str] | None = None) -> int:
    """Run all batches; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.arrow", description="Fuzz Arrow.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        first, count, seed, progress = options.worker
        return work(int(first), int(count), int(seed), Path(progress))
    began = time.monotonic()
    total: collections.Counter[str] = collections.Counter()
    found = 0
    tried = 0
    for first in range(options.first, options.first + options.inputs, BATCH):
        if time.monotonic() - began > options.seconds:
            break
        count = min(BATCH, options.first + options.inputs - first)
        tally, reports = run(first, count, options.seed)
        total += tally
        tried += count
        found += len(reports)
        for report in reports:
            sys.stdout.write(report + "\n")
        seconds = time.monotonic() - began
        sys.stdout.write(f"arrow: {tried} inputs, {found} found, {seconds:.0f} s\n")
        sys.stdout.flush()
    sys.stdout.write("".join(f"  {name}: {each}\n" for name, each in sorted(total.items())))
    return 1 if found else 0


if __name__ == "__main__":
    try:
        code = main()
    except Exception:  # noqa: BLE001 - the exit code of a worker tells the parent
        traceback.print_exc()
        code = 3
    sys.exit(code)
