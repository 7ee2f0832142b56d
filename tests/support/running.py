"""The command line in a process of its own, whose lines are waited for with a deadline."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
SECONDS_MAX = 20.0


class Ended(NamedTuple):
    code: int
    out: bytes
    err: str


_NOT_THE_TESTS = ("PENSTOCK_", "MAKE", "MFLAGS", "ARGS")


def environment(**more: str) -> dict[str, str]:
    """The environment of the tests, without settings of whoever runs them."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_THE_TESTS)
    }
    return {**plain, **more}


def run(*arguments: object, data: bytes = b"", **more: str) -> Ended:
    """Run a command to its end, `data` being its standard input."""
    done = subprocess.run(  # noqa: S603
        [*PENSTOCK, *map(str, arguments)],
        input=data,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment(**more),
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


class Running:
    """A command that goes on until it is told to end.

    Standard error goes to a file, if one is named: a pipe that nobody reads stops a process that
    logs much.
    """

    def __init__(self, *arguments: object, errors: Path | None = None, **more: str) -> None:
        self._errors = errors
        with contextlib.ExitStack() as stack:
            self.popen = subprocess.Popen(  # noqa: S603
                [*PENSTOCK, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE
                if errors is None
                else stack.enter_context(errors.open("wb")),
                env=environment(**more),
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self.stdout,), daemon=True)

    @property
    def stdin(self) -> IO[bytes]:
        assert self.popen.stdin is not None
        return self.popen.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.popen.stdout is not None
        return self.popen.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.popen.kill()
        self.popen.wait(SECONDS_MAX)
        if self._reader.ident is not None:
            self._reader.join(SECONDS_MAX)
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read(self, pipe: Iterator[bytes]) -> None:
        for line in pipe:
            self._lines.put(line.decode())

    def line(self) -> str:
        """The next line of standard output, within the deadline."""
        if self._reader.ident is None:
            self._reader.start()
        try:
            return self._lines.get(timeout=SECONDS_MAX).rstrip("\n")
        except queue.Empty:
            raise AssertionError(f"no line came; it ended with {self.popen.poll()}") from None

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Send a signal; return the exit code and what is on standard error."""
        self.popen.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and what is on standard error."""
        started = time.monotonic()
        code = self.popen.wait(SECONDS_MAX)
        assert time.monotonic() - started < SECONDS_MAX
        if self._errors is not None:
            return code, self._errors.read_text()
        assert self.popen.stderr is not None
        return code, self.popen.stderr.read().decode()
