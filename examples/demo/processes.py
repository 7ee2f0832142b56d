"""Processes that end with the demo, together with all that they started."""

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
LOOK_SECONDS = 0.02


@contextmanager
def penstock(
    *arguments: str, output: Path, end_seconds_max: float = END_SECONDS_MAX, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the command line; what it prints goes to a file.

    It is told to end when the context does, and killed if it does not within `end_seconds_max`.
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
            start_new_session=True,  # Ctrl-C is for the demo, which then ends this in its order
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
        time.sleep(LOOK_SECONDS)


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
