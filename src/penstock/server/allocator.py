"""The allocators of the process: settings, and the return of freed memory to the system.

Freed memory stays in the process by default. glibc has an arena for each thread. With each large
buffer that is freed it raises the size from which a buffer gets pages of its own, up to 32 MiB; so
clients could fill its arenas with pieces that no later buffer fits. Arrow's allocator, mimalloc,
keeps the pages of threads that do not allocate again.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Final

from penstock.limits import MALLOC_ARENAS_MAX, MALLOC_MMAP_BYTES_MIN, MALLOC_TRIM_BYTES

__all__ = ["configure_allocators", "release_freed_memory"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of mallopt(3)."""
_PURGE_DELAY: Final = "MIMALLOC_PURGE_DELAY"
"""Milliseconds for which mimalloc keeps free pages. It reads this variable when Arrow is loaded."""


def configure_allocators() -> None:
    """Let the allocators return freed memory; call it before Arrow is imported.

    Where the C library is not glibc, its allocator is left as it is.
    """
    os.environ.setdefault(_PURGE_DELAY, "0")
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, MALLOC_ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, MALLOC_MMAP_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, MALLOC_TRIM_BYTES)


def release_freed_memory() -> None:
    """Return the free pages of the C allocator to the system. It takes milliseconds."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library; None if it has no such function."""
    return getattr(ctypes.CDLL(None), name, None)
