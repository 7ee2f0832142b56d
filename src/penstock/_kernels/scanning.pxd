"""A Scan: one pass over a buffer that fills a batch and interns new topics."""

from libc.stdint cimport uint8_t, uint32_t

from penstock._kernels.batch cimport Batch, Sender
from penstock._kernels.topics cimport TopicTable

ctypedef size_t (*Run)(Scan scan, size_t start) noexcept nogil

cdef class Scan:
    cdef Batch batch
    cdef TopicTable topics
    cdef bint learn_topics
    cdef bint binary_names         # names on the wire are bytes, not UTF-8
    cdef Py_buffer permits         # a byte for each topic id: not 0 if it may be published to
    cdef bint holds_permits
    cdef size_t bytes_max          # of a body, message or payload, as the protocol says
    cdef uint32_t unknown_start    # set by a run that stopped at a name it does not know
    cdef uint32_t unknown_length

    cdef int permit(self, object permits) except -1
    cdef bint learn(self, bytes unknown) except -1
    cdef size_t walk(
        self,
        object data,
        Py_ssize_t start,
        uint32_t source,
        uint32_t features,
        bint big,
        Sender sender,
        Run run,
    ) except? 0

    cdef inline bint permitted(self, uint32_t topic) noexcept nogil:
        return not self.holds_permits or (
            topic < self.permits.len and (<const uint8_t *>self.permits.buf)[topic]
        )

    cdef inline size_t stop_at_unknown(self, size_t frame, size_t name, uint32_t length) noexcept nogil:
        self.unknown_start = <uint32_t>name
        self.unknown_length = length
        return frame
