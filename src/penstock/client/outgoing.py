"""What a caller publishes, made ready for a session."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from penstock.limits import MIB

__all__ = ["Headers", "header_pairs", "runs"]

WRITE_VALUES_MAX: Final = 1024
WRITE_BYTES_MAX: Final = 1 * MIB
"""What goes into one write, unless one value is more."""

Headers: TypeAlias = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]
"""LamaMQ's headers: a key may come twice in pairs, and text is sent as UTF-8."""


def header_pairs(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    """Return headers as the codec takes them."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((key, value.encode() if isinstance(value, str) else value) for key, value in pairs)


def runs(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut values into what goes into one write each."""
    source = iter(values)
    while run := list(itertools.islice(source, WRITE_VALUES_MAX)):
        while run:
            size = len(run)
            while size > 1 and sum(map(len, run[:size])) > WRITE_BYTES_MAX:
                size //= 2
            yield run[:size]
            run = run[size:]
