"""The memory that the process may use: of the machine, or of its control group."""

import functools
import os
from pathlib import Path
from typing import Final

from penstock.limits import MEMORY_DEFAULT_BYTES_MAX, MEMORY_DEFAULT_BYTES_MIN

__all__ = ["default_memory_bytes", "usable_memory_bytes"]

_ROOT: Final = Path("/")
_LIMIT_FILES: Final = ("memory.max", "memory.limit_in_bytes")
"""Files with the limit of a control group, of version 2 and version 1."""


@functools.cache
def default_memory_bytes() -> int:
    """Return the default of the memory budget: half of what may be used, within bounds."""
    half = usable_memory_bytes() // 2
    return min(max(half, MEMORY_DEFAULT_BYTES_MIN), MEMORY_DEFAULT_BYTES_MAX)


def usable_memory_bytes(root: Path = _ROOT) -> int:
    """Return the memory of the machine, or the lowest limit of the process's control groups."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_group_limits(root)])


def _group_limits(root: Path) -> list[int]:
    """Return the limits of the control groups of this process, and of those above them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    found = []
    for line in ["0::/", *lines]:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            found += [limit for name in _LIMIT_FILES if (limit := _limit(folder / name))]
            if folder == mount:
                break
    return found


def _limit(file: Path) -> int:
    """Return the limit in a file; 0 if there is none."""
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
