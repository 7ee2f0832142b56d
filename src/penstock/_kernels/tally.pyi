from array import array

from penstock._kernels.batch import Batch

def tally(batch: Batch, counts: array[int], first_offset: int) -> None:
    """Add the rows of `batch` to the counters of their topics; the first row has `first_offset`.

    `counts` has four unsigned 64-bit numbers for each topic id: messages, bytes of their values,
    offset of the last message, and its time in microseconds since the epoch. Rows of topics beyond
    its end are skipped.
    """

def busiest(before: array[int], now: array[int], most: int) -> list[int]:
    """Return the ids of the `most` topics with the most messages from `before` to `now`.

    The busiest come first; topics without messages are skipped. Raise ValueError if `most` is
    below 1.
    """
