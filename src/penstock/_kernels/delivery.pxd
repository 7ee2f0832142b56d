"""A Delivery: encodes rows of a batch into frames for one audience."""

from libc.stdint cimport uint8_t, uint32_t

from penstock._kernels.batch cimport Batch
from penstock._kernels.frame cimport put
from penstock._kernels.gathered cimport Piece
from penstock._kernels.topics cimport TopicTable

ctypedef size_t (*Measure)(Delivery delivery) noexcept nogil
ctypedef void (*Write)(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil

cdef class Delivery:
    cdef Batch batch
    cdef TopicTable topics
    cdef bint big                  # byte order of the audience, where it has two
    cdef uint32_t message_id       # LamaMQ: of the first frame
    cdef readonly uint32_t count
    cdef const uint32_t *rows      # NULL for all
    cdef Py_buffer view
    cdef bint holds_view
    cdef uint32_t refused          # a row that cannot be delivered, plus one
    cdef Piece *pieces             # what is not copied; NULL if all is
    cdef uint32_t piece_count
    cdef size_t piece_bytes_min    # with pieces: what is smaller is copied

    cdef inline uint32_t row(self, uint32_t position) noexcept nogil:
        return self.rows[position] if self.rows else position

    cdef inline size_t refuse(self, uint32_t row) noexcept nogil:
        self.refused = row + 1
        return 0

    cdef inline uint8_t *place(
        self, uint8_t *out, const uint8_t *end, const uint8_t *data, const uint8_t *data_end, size_t n
    ) noexcept nogil:
        """Copy the value of a row to `out`, or refer to it there; return where the rest goes."""
        if not self.refers(n):
            return put(out, end, data, data_end, n)
        self.refer(out, data, n)
        return out

    cdef inline bint refers(self, size_t n) noexcept nogil:
        """Return whether to refer to so many bytes, instead of a copy."""
        return self.pieces and n >= self.piece_bytes_min

    cdef inline void refer(self, uint8_t *out, const uint8_t *data, size_t n) noexcept nogil:
        self.pieces[self.piece_count].at = out
        self.pieces[self.piece_count].data = data
        self.pieces[self.piece_count].length = n
        self.piece_count += 1

    cdef int check_stored(self) except -1
    cdef object frames(self, Measure measure, Write write)
    cdef bytes copied(self, Write write, size_t size)
    cdef object gathered(self, Write write, size_t size, size_t value_bytes)
    cdef size_t large_value_bytes(self) noexcept nogil

cdef size_t measure_frames(Delivery delivery) noexcept nogil
cdef void copy_frames(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil
