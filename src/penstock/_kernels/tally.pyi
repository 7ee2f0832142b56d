from array import array

from penstock._kernels.batch import Batch

def tally(batch: Batch, counts: array[int], first_offset: int) -> None:
    """Add the rows of `batch`, whose first has `first_offset`, to the numbers of their topics.

    `counts` has four unsigned 64-bit numbers for each topic id: messages, bytes of their values,
    the last one's offset, and when that came in microseconds since the epoch. Rows of topics beyond
    its end are left out.
    """

def busiest(before: array[int], now: array[int], most: int) -> list[int]:
    """Return the ids of the `most` topics that got the most messages from `before` to `now`.

    The busiest come first; those that got none are left out. Raise ValueError if `most` is below 1.
    """
