"""How long it takes from `make demo` to the first live chart in a browser.

    python -m bench.macro.first_chart [--save] [--runs N]

`make demo` is run as a user runs it, in an environment that is set up already. Its output is read
until it names the console; then Debian's chromium opens that address. The chart counts as live when
it has a message that the demo has sent. The median of several runs counts. The load of the machine
before the runs is kept with the result: both grow together.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.macro.console import browser_page
from bench.results import save

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = 3
SECONDS_MAX: Final = 300.0
ADDRESS: Final = re.compile(r"(http://\S+?)/? is the console")
HAS_MESSAGES: Final = """() => {
    const shown = document.querySelector('[aria-label="Chart: received"]');
    const chart = shown && getElement(Number(shown.id.slice(1)))?.chart;
    const series = chart ? chart.getOption().series : [];
    return series.some((line) => line.data.some((point) => point[1] > 0));
}"""
"""Whether the chart of the first page has a message; NiceGUI finds the component of an element."""


@contextmanager
def running_demo() -> Iterator["subprocess.Popen[str]"]:
    """Run `make demo` until the context ends."""
    process = subprocess.Popen(
        ["make", "--no-print-directory", "demo", "ARGS=--any-port"],  # noqa: S607
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)


def console_address(process: "subprocess.Popen[str]") -> str:
    """Return the address that the demo prints."""
    said = ""
    for line in process.stdout or ():
        said += line
        found = ADDRESS.search(line)
        if found:
            return found[1]
    raise SystemExit(f"the demo has no console:\n{said}")


def measure(*, runs: int) -> list[dict[str, Any]]:
    """Return the seconds to the address of the console, and to the first chart with a message."""
    times: dict[str, list[float]] = {"the address of the console": [], "the first live chart": []}
    load = os.getloadavg()[0]
    with browser_page() as page:
        for _ in range(runs):
            began = time.monotonic()
            with running_demo() as process:
                address = console_address(process)
                times["the address of the console"].append(time.monotonic() - began)
                page.goto(address, timeout=1000 * SECONDS_MAX)
                page.wait_for_function(HAS_MESSAGES, timeout=1000 * SECONDS_MAX)
                times["the first live chart"].append(time.monotonic() - began)
                page.goto("about:blank")
    return [
        {"to": name, "seconds": statistics.median(taken), "runs": taken, "load": load}
        for name, taken in times.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--runs", type=int, default=RUNS)
    arguments = parser.parse_args()
    results = measure(runs=arguments.runs)
    for row in results:
        print(f"{row['to']}: {row['seconds']:.1f} s")
    if arguments.save:
        print(f"saved to {save('first_chart', results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
