"""The number of tasks of a read: by the cores that run them, or by the size of the range.

Spark plans a read of a Python data source in a process that knows nothing of the cluster. The
processes inherit the environment of the driver's JVM, where `session` sets the number of cores.
"""

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.limits import SPARK_TASKS_BY_SIZE_MAX

__all__ = [
    "PARALLELISM",
    "TaskLimit",
    "cores_in_environment",
    "cores_of",
    "is_local",
    "task_count",
]

PARALLELISM: Final = "PENSTOCK_SPARK_CORES"
"""The variable with the number of cores of the executors."""
_LOCAL: Final = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def is_local(master: str) -> bool:
    """Return whether the executors of a master run on the driver's machine."""
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def cores_of(master: str, settings: Mapping[str, str]) -> int | None:
    """Return the cores of the executors, None if master and settings do not tell."""
    for name in ("spark.default.parallelism", "spark.cores.max"):
        if settings.get(name, "").isdigit():
            return int(settings[name])
    each, count = (settings.get(f"spark.executor.{name}", "") for name in ("cores", "instances"))
    if each.isdigit() and count.isdigit():
        return int(each) * int(count)
    found = _LOCAL_CLUSTER.fullmatch(master)
    if found is not None:
        return int(found[1]) * int(found[2])
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    cores = found["cores"] or "1"
    return int(cores) if cores.isdigit() else os.cpu_count() or 1


def cores_in_environment() -> int | None:
    """Return the cores that `session` has stored in the environment, None if it has not."""
    text = os.environ.get(PARALLELISM, "")
    return int(text) if text.isdigit() and int(text) else None


class TaskLimit(NamedTuple):
    """The number of tasks of a read. None means by the cores, or if they are None, by the size."""

    tasks: int | None
    cores: int | None


def task_count(size: int, *, cores: int | None, size_min: int, size_usual: int) -> int:
    """Return the number of tasks for a range of a size.

    At most one for each core, and none smaller than `size_min`. If `cores` is None, there are
    enough tasks of `size_usual` for a cluster, and for the cores of this machine.
    """
    least = 1 + size // size_min
    if cores is not None:
        return min(cores, least)
    by_size = min(SPARK_TASKS_BY_SIZE_MAX, size // size_usual)
    return max(min(os.cpu_count() or 1, least), by_size)
