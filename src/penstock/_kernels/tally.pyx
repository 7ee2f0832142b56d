"""Traffic counters of each topic, updated by batch, and the busiest topics."""

from libc.stdint cimport uint32_t, uint64_t

from penstock._kernels.batch cimport Batch

cdef enum:
    # The counters of a topic are adjacent, so that a row touches one cache line.
    MESSAGES = 0
    BYTES = 1
    LAST_OFFSET = 2
    LAST_US = 3
    WIDTH = 4


def tally(Batch batch not None, uint64_t[::1] counts not None, uint64_t first_offset):
    cdef size_t known = <size_t>counts.shape[0] // WIDTH
    cdef uint64_t now_us = <uint64_t>batch.timestamp_us
    cdef uint64_t *first = &counts[0] if known else NULL
    cdef uint64_t *entry
    cdef uint32_t row, topic
    for row in range(batch.columns.count):
        topic = batch.columns.topic[row]
        if topic >= known:
            continue
        entry = first + WIDTH * <size_t>topic
        entry[MESSAGES] += 1
        entry[BYTES] += batch.columns.value_length[row]
        entry[LAST_OFFSET] = first_offset + row
        entry[LAST_US] = now_us


def busiest(const uint64_t[::1] before not None, const uint64_t[::1] now not None, int most):
    cdef size_t earlier = <size_t>before.shape[0] // WIDTH
    cdef size_t known = <size_t>now.shape[0] // WIDTH
    cdef size_t topic
    cdef uint64_t grown
    cdef const uint64_t *old = &before[0] if earlier else NULL
    cdef const uint64_t *new = &now[0] if known else NULL
    cdef list found = []           # the busiest first; never longer than `most`
    cdef uint64_t least = 0        # growth of the last topic of a full list
    if most < 1:
        raise ValueError("expected at least one")
    for topic in range(known):
        grown = new[WIDTH * topic + MESSAGES]
        if topic < earlier:
            grown -= old[WIDTH * topic + MESSAGES]
        if grown <= least:
            continue
        found.append((grown, topic))
        found.sort(reverse=True)
        if len(found) > most:
            found.pop()
        if len(found) == most:
            least = <uint64_t>found[-1][0]
    return [number for _, number in found]
