"""Seconds from the start of the demo to the first line in a chart of its console.

    python -m bench.macro.first_chart [--save]

Starts `examples.demo` as `make demo` does after its set-up, opens the console's first page in
Debian's chromium as soon as the demo has printed its address, and looks at the charts until one of
them has a line: pixels that are neither grey nor transparent.
"""

import argparse
import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from bench.macro.console import browser_page
from bench.results import save

SECONDS_MAX: Final = 120
HAS_LINE: Final = """() => [...document.querySelectorAll('canvas')].some((canvas) => {
  if (!canvas.width || !canvas.height) return false;
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = data.subarray(i, i + 4);
    if (a > 128 && Math.max(r, g, b) - Math.min(r, g, b) > 80) return true;
  }
  return false;
})"""


@contextlib.contextmanager
def demo() -> Iterator["subprocess.Popen[bytes]"]:
    """Run the demo; end it as Ctrl-C does."""
    command = [sys.executable, "-m", "examples.demo", "--any-port"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def console_address(process: "subprocess.Popen[bytes]") -> str:
    """Return the address of the console, when the demo has said it."""
    if process.stdout is None:
        raise AssertionError("the output of the demo is a pipe")
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(SECONDS_MAX):
            part = os.read(process.stdout.fileno(), 1 << 16)
            said += part
            if found := re.search(rb"(http\S+) is the console", said):
                return found[1].decode()
            if not part:
                break
    raise SystemExit(f"the demo has no console: {said.decode()}")


def measure() -> list[dict[str, Any]]:
    """Return the seconds to the address of the console, and to the first line in a chart."""
    with browser_page() as page:  # a visitor's browser is there already
        began = time.monotonic()
        with demo() as process:
            address = console_address(process)
            answered = time.monotonic() - began
            page.goto(address)
            page.wait_for_function(HAS_LINE, timeout=SECONDS_MAX * 1000, polling=100)
            return [{"console_seconds": answered, "chart_seconds": time.monotonic() - began}]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    arguments = parser.parse_args()
    results = measure()
    print(", ".join(f"{name} {value:.1f}" for name, value in results[0].items()))
    if arguments.save:
        print(f"saved to {save('first_chart', results)}")


if __name__ == "__main__":
    main()
