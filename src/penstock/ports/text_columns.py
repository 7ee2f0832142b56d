"""Lists of names to columns of Arrow and back, in parts.

Arrow converts a list without giving up the interpreter lock. A segment may have tens of thousands
of topics with names of kilobytes: at once, all of them would stop the event loop for a tenth of a
second. Between two parts it can go on.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

__all__ = ["name_list", "text_column", "text_parts"]

_NAMES_MAX: Final = 4096
_CHARACTERS_MAX: Final = 256 * 1024


def text_parts(names: Sequence[str]) -> Iterator[pa.StringArray]:
    """Yield names as columns of a few thousand names, or a few hundred kilobytes; at least one."""
    part: list[str] = []
    size = 0
    for name in names:
        part.append(name)
        size += len(name)
        if size >= _CHARACTERS_MAX or len(part) >= _NAMES_MAX:
            yield pa.array(part, pa.utf8())
            part, size = [], 0
    yield pa.array(part, pa.utf8())


def text_column(names: Sequence[str]) -> pa.StringArray:
    """Return names as one column."""
    return pa.concat_arrays(list(text_parts(names)))


def name_list(column: pa.StringArray) -> list[str]:
    """Return the names of a column."""
    mean = column.nbytes // max(len(column), 1)
    step = max(min(_NAMES_MAX, _CHARACTERS_MAX // max(mean, 1)), 1)
    parts = (column.slice(start, step).to_pylist() for start in range(0, len(column), step))
    return list(itertools.chain.from_iterable(parts))
