"""Frames whose large values stay in the buffer of the batch that they were received in."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock._kernels.batch cimport Batch

cdef struct Piece:
    const uint8_t *at                  # its place: the end of what precedes it in `between`
    const uint8_t *data            # in the buffer of the batch
    size_t length

cdef class Gathered:
    cdef Batch batch
    cdef uint64_t loads            # of the batch, when it was encoded
    cdef bytes between             # everything but the pieces, in order
    cdef const uint8_t *start      # of `between`
    cdef const uint8_t *end        # of what is used of it
    cdef Piece *pieces             # owned
    cdef uint32_t count
    cdef size_t size
    cdef list kept                 # copies that together are the end, from `kept_from` on
    cdef size_t kept_from

    cdef uint8_t *allot(self, uint32_t pieces_max, size_t between_max) except NULL
    cdef void finish(self, uint32_t count, size_t size) noexcept
    cdef int check(self) except -1
    cdef int keep(self, size_t start) except -1
    cdef size_t part(self, size_t index, const uint8_t **data) noexcept nogil
    cdef ssize_t send_from(self, int descriptor, size_t *sent) noexcept nogil
