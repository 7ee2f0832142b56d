"""Descriptors of the process: the system's limit, and the part that connections may use."""

import resource
from typing import NamedTuple

from penstock.limits import (
    DESCRIPTORS_MAX,
    DESCRIPTORS_PER_PROGRAM,
    DESCRIPTORS_RESERVED,
    HTTP_HEALTH_CONNECTIONS,
)

__all__ = ["Descriptors", "raise_descriptor_limit"]


class Descriptors(NamedTuple):
    """The system's limit of open files, and how many of them are not for connections."""

    limit: int
    reserved: int

    @property
    def connections_max(self) -> int:
        """Connections that fit below the reserved descriptors."""
        return max(1, self.limit - self.reserved)


def raise_descriptor_limit(*, programs: int = 0) -> Descriptors:
    """Raise the soft limit of open files to the hard limit; return what may be used.

    Reserved are descriptors for the log, health checks and other work of the broker, and for the
    pipes of its programs. They are at most half of a small limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    limit = DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    reserved = DESCRIPTORS_RESERVED + HTTP_HEALTH_CONNECTIONS + programs * DESCRIPTORS_PER_PROGRAM
    return Descriptors(limit, min(reserved, limit // 2))
