"""The processes that write a storage together, as one of them sees them."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Followed", "NodeStatus"]


class Followed(NamedTuple):
    """How far a node delivers a partition of another one: its next offset, and the end then."""

    offset: int
    end: int


class NodeStatus(NamedTuple):
    """A node, and the partition of its number. Times are microseconds since the epoch.

    The process has written since `since_us`. What it follows is from its report of `reported_us`,
    None if it has not reported; of the node that is asked it is from this moment.
    """

    number: int
    host: str
    process: int
    since_us: int
    horizon: int
    end: int
    last_us: int | None
    """Time of the last message; None if it is not known."""
    reported_us: int | None
    followed: Mapping[int, Followed]
