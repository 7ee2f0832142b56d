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
    """Yield lines but for the warning and those tracebacks.

    Workers that are let go together write theirs into each other.
    """
    held: list[bytes] = []
    begun = ended = 0
    for line in lines:
        if line.startswith(_TRACEBACK):
            held.append(line)
            begun += 1
        elif held:
            held.append(line)
            if line.startswith(b" "):
                continue
            ended += 1
            if ended == begun or not line.startswith(_LET_GO):
                if not _is_of_workers(held, begun):
                    yield from held
                held, begun, ended = [], 0, 0
        elif not line.startswith(_MODULE):
            yield line
    yield from held


def _is_of_workers(held: list[bytes], count: int) -> bool:
    """Tell whether so many tracebacks are all of workers that were let go."""
    by_daemon = sum(_BY_DAEMON in line for line in held)
    return by_daemon >= count and sum(line.startswith(_LET_GO) for line in held) == count


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
