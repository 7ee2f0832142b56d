"""The topic table: interns topic names as numeric ids."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock._kernels.names cimport Names

cdef enum:
    TOPICS_PER_CHUNK = 1024
    CHUNKS = 4096                  # numbers of removed topics are not given again
    NO_CHANNEL = 256

cdef struct Topic:
    # One block of memory holds all three names; LOOSE bytes after it are readable. A name that does
    # not fit into a fleximq header has none: its length is 0.
    uint8_t *name                  # canonical, UTF-8
    uint8_t *binary_name           # in Rheos
    uint8_t *fleximq_header        # u32 length and MessagePack map, ready for a PUB
    uint8_t *block_end
    uint32_t name_length
    uint32_t binary_name_length
    uint32_t fleximq_header_length
    uint32_t channel               # herald's, or NO_CHANNEL
    uint8_t parent[16]             # the Rheos client id of its creator
    uint8_t has_parent

cdef class TopicTable:
    # Numbers in the three lookups below are topic ids plus one; 0 means there is none.
    cdef Names by_name
    cdef Names by_binary_name
    cdef uint32_t channel_topics[256]
    cdef Topic *chunks[CHUNKS]     # topics never move
    cdef readonly uint32_t count   # numbers given, those of removed topics included
    cdef readonly uint32_t live
    cdef readonly uint32_t removals
    cdef readonly uint32_t capacity
    cdef readonly uint64_t name_bytes
    cdef readonly uint64_t name_bytes_max
    cdef readonly uint32_t owner_topics_max
    cdef readonly uint64_t owner_name_bytes_max
    cdef readonly str owner        # of the names that are added next; empty is the broker itself
    cdef list names                # by number; None where the topic was removed
    cdef uint32_t owner_quota      # topics that it may have; 0 for owner_topics_max
    cdef list owners               # by number
    cdef dict shares               # number and bytes of the topics of each owner
    cdef object removed_names      # hashes, the oldest first
    cdef dict unlisted             # names of earlier versions that scans must not find, with numbers

    cdef uint32_t add(self, str name) except? 0xFFFFFFFF
    cdef int check_room(self, size_t size) except -1
    cdef int charge(self, str owner, Py_ssize_t topics, Py_ssize_t size) except -1
    cdef bint learn(self, bytes name, bint binary) except -1

cdef inline Topic *topic_at(Topic **chunks, uint32_t identifier) noexcept nogil:
    return &chunks[identifier // TOPICS_PER_CHUNK][identifier % TOPICS_PER_CHUNK]
