"""What Spark's processes say on standard error, without what nobody needs to read.

Java warns of a module that Spark itself asks for, and PySpark prints a traceback for each worker
that is let go: when it was idle for a minute, or when a query needs only the first rows. Neither
can be switched off.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["filtered_stderr", "without_noise"]

_MODULE: Final = b"WARNING: Using incubator modules:"
_TRACEBACK: Final = b"Traceback (most recent call last):"
_LET_GO: Final = (b"BrokenPipeError:", b"ConnectionResetError:")
_BY_DAEMON: Final = b"pyspark/daemon.py"


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines but for the warning and those tracebacks."""
    traceback: list[bytes] = []
    for line in lines:
        if traceback:
            traceback.append(line)
            if line.startswith(b" "):
                continue
            if not (line.startswith(_LET_GO) and any(_BY_DAEMON in each for each in traceback)):
                yield from traceback
            traceback = []
        elif line.startswith(_TRACEBACK):
            traceback.append(line)
        elif not line.startswith(_MODULE):
            yield line
    yield from traceback


@contextlib.contextmanager
def filtered_stderr() -> Iterator[None]:
    """Give processes that are started meanwhile a standard error without noise, as they live."""
    try:
        ours = os.dup(2)
    except OSError:  # there is none
        yield
        return
    read_end, write_end = os.pipe()
    os.dup2(write_end, 2)
    os.close(write_end)
    threading.Thread(
        target=_pass_on, args=(read_end, ours), name="penstock-stderr", daemon=True
    ).start()
    try:
        yield
    finally:
        os.dup2(ours, 2)


def _pass_on(source: int, target: int) -> None:
    with open(source, "rb", buffering=0) as pipe, open(target, "wb", buffering=0) as stderr:
        for line in without_noise(pipe):
            with contextlib.suppress(OSError):
                stderr.write(line)
