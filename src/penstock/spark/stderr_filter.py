"""A filter for the standard error of Spark's JVM and of its Python workers.

The filter drops two things that no setting of Spark or Java turns off. Java warns of the incubator
module that Spark's launcher adds. PySpark prints a traceback for each worker whose connection Spark
closes: after a minute without work, or when a query needs only the first rows. The workers that
plan reads always run PySpark's own daemon module, so `worker_daemon` cannot catch these errors.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["drop_spark_noise", "filtered_stderr"]

_MODULE: Final = b"WARNING: Using incubator modules:"
_TRACEBACK: Final = b"Traceback (most recent call last):"
_CLOSED: Final = (b"BrokenPipeError:", b"ConnectionResetError:")
_BY_DAEMON: Final = b"pyspark/daemon.py"


def drop_spark_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield all lines except the module warning and tracebacks of closed workers.

    Tracebacks that workers write at the same time may be interleaved.
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
            if ended == begun or not line.startswith(_CLOSED):
                if not _are_of_closed_workers(held, begun):
                    yield from held
                held, begun, ended = [], 0, 0
        elif not line.startswith(_MODULE):
            yield line
    yield from held


def _are_of_closed_workers(held: list[bytes], count: int) -> bool:
    """Return whether all `count` tracebacks come from workers whose connection was closed."""
    by_daemon = sum(_BY_DAEMON in line for line in held)
    return by_daemon >= count and sum(line.startswith(_CLOSED) for line in held) == count


@contextlib.contextmanager
def filtered_stderr() -> Iterator[int | None]:
    """Yield a descriptor to pass to `Popen` as `stderr`; None if this process has no stderr.

    Lines that the child process writes are filtered and copied to the standard error that this
    process has now, until the child and its own children end. The descriptors of this process stay
    as they are. The yielded descriptor is closed on exit from the context.
    """
    try:
        target = os.dup(2)
    except OSError:
        yield None
        return
    source, child_stderr = os.pipe()
    threading.Thread(
        target=_copy, args=(source, target), name="penstock-stderr", daemon=True
    ).start()
    try:
        yield child_stderr
    finally:
        os.close(child_stderr)


def _copy(source: int, target: int) -> None:
    with open(source, "rb", buffering=0) as pipe, open(target, "wb", buffering=0) as stderr:
        for line in drop_spark_noise(pipe):
            with contextlib.suppress(OSError):
                stderr.write(line)
