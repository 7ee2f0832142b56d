"""The topic table: interns topic names as numeric ids."""

from libc.stdint cimport uint8_t, uint32_t

from penstock._kernels.names cimport Names

cdef enum:
    TOPICS_PER_CHUNK = 1024
    CHUNKS = 1024
    NO_CHANNEL = 256

cdef struct Topic:
    # One block of memory holds all three names; LOOSE bytes after it are readable.
    uint8_t *name                  # canonical, UTF-8
    uint8_t *binary_name           # in Rheos
    uint8_t *fleximq_header        # u32 length and MessagePack map, ready for a PUB
    uint8_t *block_end
    uint32_t name_length
    uint32_t binary_name_length
    uint32_t fleximq_header_length
    uint32_t channel               # herald's, or NO_CHANNEL

cdef class TopicTable:
    # Numbers in the three lookups below are topic ids plus one; 0 means there is none.
    cdef Names by_name
    cdef Names by_binary_name
    cdef uint32_t channel_topics[256]
    cdef Topic *chunks[CHUNKS]     # topics never move
    cdef readonly uint32_t count
    cdef readonly uint32_t capacity
    cdef list names

    cdef uint32_t add(self, str name) except? 0xFFFFFFFF
    cdef bint learn(self, bytes name, bint binary) except -1

cdef inline Topic *topic_at(Topic **chunks, uint32_t identifier) noexcept nogil:
    return &chunks[identifier // TOPICS_PER_CHUNK][identifier % TOPICS_PER_CHUNK]
