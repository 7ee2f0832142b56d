"""The numbers of connections: one for each, in the order they come in, whatever the transport."""

import itertools
from typing import Final

__all__ = ["next_connection"]

_NUMBERS: Final = itertools.count(1)


def next_connection() -> int:
    """Return a number that no other connection of this process has."""
    return next(_NUMBERS)
