"""Processes that the demo starts and stops, with their child processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["penstock"]

END_SECONDS_MAX = 6.0
POLL_SECONDS = 0.02


@contextmanager
def penstock(
    *arguments: str, output: Path, end_seconds_max: float = END_SECONDS_MAX, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `penstock` with its output in a file.

    At the end of the context it gets SIGTERM, and SIGKILL if it runs for `end_seconds_max` more.
    """
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with output.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=plain | environment,
            start_new_session=True,  # Ctrl-C reaches the demo only, which then stops this process
        )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(end_seconds_max)
        _end_session(process.pid)
        process.wait()


def _end_session(session: int) -> None:
    """Kill all processes of a session; return when they are gone."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while (left := _members(session)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _members(session: int) -> Sequence[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session, *_ = place.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(place.parent.name))
    return found
