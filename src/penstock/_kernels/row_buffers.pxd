"""The buffers of a row group's record batch by their numbers, and checked access to them.

Arrow's buffers, as the record schema orders them (v: validity, o: offsets):

     0 key v o data             16 headers v o            33 correlation v o data
     3 value v o data           18 headers' struct v      36 status v data
     6 topic v index            19 headers' key v o data  38 message_id v o data
     8 partition v data         22 headers' value v o data
    10 offset v data            25 protocol v index       41 client v data
    12 timestamp v data         27 kind v index           43 form v data
    14 timestampType v data     29 sender v index         45
                                31 created v data
"""

from libc.stdint cimport uint8_t, uint32_t

from penstock._kernels.frame cimport load32

cdef enum:
    VALUE_OFFSETS = 4
    VALUE_DATA = 5
    TOPIC = 7
    TIMESTAMP = 13
    HEADERS = 17
    HEADER_KEYS = 20
    HEADER_KEY_DATA = 21
    HEADER_VALUES = 23
    HEADER_VALUE_DATA = 24
    PROTOCOL = 26
    KIND = 28
    SENDER = 30
    CREATED_VALIDITY = 31
    CREATED = 32
    STATUS_VALIDITY = 36
    STATUS = 37
    CLIENT = 42
    FORMS = 44
    BUFFER_COUNT = 45


cdef struct Region:
    const uint8_t *start
    size_t length


cdef struct Dictionary:
    Region offsets
    Region data
    uint32_t entries


cdef inline const char *check_lengths(Region *columns, size_t count) noexcept nogil:
    """Return an error text if a column is shorter than `count` rows, else NULL."""
    cdef size_t validity = (count + 7) // 8
    if (
        columns[VALUE_OFFSETS].length < 4 * (count + 1)
        or columns[TOPIC].length < 2 * count
        or columns[TIMESTAMP].length < 8 * count
        or columns[HEADERS].length < 4 * (count + 1)
        or columns[PROTOCOL].length < count
        or columns[KIND].length < count
        or columns[SENDER].length < 2 * count
        or columns[CREATED].length < 8 * count
        or columns[STATUS].length < 4 * count
        or columns[CLIENT].length < 4 * count
        or columns[FORMS].length < count
        or (columns[CREATED_VALIDITY].length and columns[CREATED_VALIDITY].length < validity)
        or (columns[STATUS_VALIDITY].length and columns[STATUS_VALIDITY].length < validity)
    ):
        return b"a column is shorter than the group"
    return NULL


cdef inline bint is_valid(Region *validity, uint32_t row) noexcept nogil:
    """Return whether the value of a row is not null."""
    return not validity.length or validity.start[row // 8] >> row % 8 & 1


cdef inline bint part_of(Region *whole, uint32_t start, uint32_t end, Region *part) noexcept nogil:
    """Find bytes of a region; return whether they are inside it."""
    if start > end or end > whole.length:
        return False
    part.start = whole.start + start
    part.length = end - start
    return True


cdef inline bint entry_at(Dictionary *dictionary, uint32_t entry, Region *name) noexcept nogil:
    """Find an entry of a dictionary; return whether it is inside the data."""
    if entry >= dictionary.entries:
        return False
    cdef const uint8_t *offsets = dictionary.offsets.start + 4 * <size_t>entry
    return part_of(&dictionary.data, load32(offsets, False), load32(offsets + 4, False), name)
