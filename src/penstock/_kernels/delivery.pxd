"""A Delivery: encodes rows of a batch into frames for one audience."""

from libc.stdint cimport uint8_t, uint32_t

from penstock._kernels.batch cimport Batch
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

    cdef inline uint32_t row(self, uint32_t position) noexcept nogil:
        return self.rows[position] if self.rows else position

    cdef inline size_t refuse(self, uint32_t row) noexcept nogil:
        self.refused = row + 1
        return 0

    cdef int check_stored(self) except -1
    cdef bytes frames(self, Measure measure, Write write)

cdef size_t measure_frames(Delivery delivery) noexcept nogil
cdef void copy_frames(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil
