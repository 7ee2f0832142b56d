"""A broker that is started for a load, with a temporary folder."""

import contextlib
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.cli.common.failure import CommandFailed
from penstock.limits import BENCH_LOG_BYTES_MAX

__all__ = ["own_broker"]

_READY_SECONDS_MAX: Final = 30.0
_STOP_SECONDS_MAX: Final = 10.0
_LISTENS: Final = re.compile(rb"listen  tcp://127\.0\.0\.1:(\d+)")


@contextlib.contextmanager
def own_broker(durability: str) -> Iterator[tuple[str, int]]:
    """Run `penstock serve` with its defaults; yield its address. Raise CommandFailed."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        command += ["--listen", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--durability", durability]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")
        }
        environment["PENSTOCK_LOG__BYTES_MAX"] = str(BENCH_LOG_BYTES_MAX)
        with (folder / "errors").open("w+b") as errors:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the command, which ends its broker
            )
            try:
                yield "127.0.0.1", _port(process, folder / "errors")
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.stdout is not None:
                    process.stdout.close()


def _port(process: "subprocess.Popen[bytes]", errors: Path) -> int:
    """Wait until the broker is ready; return its port."""
    if process.stdout is None:
        raise AssertionError("a process without its pipe")
    said = b""
    deadline = time.monotonic() + _READY_SECONDS_MAX
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\nReady.\n" not in said:
            left = deadline - time.monotonic()
            more = os.read(process.stdout.fileno(), 4096) if selector.select(left) else b""
            if not more:
                last = errors.read_text(errors="replace").strip().rpartition("\n")[2]
                raise CommandFailed(
                    f"the broker for this load did not start: {last.removeprefix('penstock: ')}",
                    "start one with `penstock serve` and give --url",
                )
            said += more
    match = _LISTENS.search(said)
    if match is None:
        raise AssertionError(f"a broker that does not say where it listens: {said!r}")
    return int(match[1])
